package fairlead_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/operations/outbox"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// broken is a database that does not respond.
type broken struct{}

func (broken) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("broken") }
func (broken) Driver() driver.Driver                        { return nil }

// Everything that a runtime hosts uses the logger of WithLogger, unless it has a Logger of its own.
func TestOneLogger(t *testing.T) {
	t.Parallel()
	type declare func(t *testing.T, rt *fairlead.Runtime, s *apiserver.Server, own *slog.Logger)
	failing := func(h reconcile.Host, own *slog.Logger) {
		var opts []reconcile.Option
		if own != nil {
			opts = append(opts, reconcile.Logger(own))
		}
		reconcile.New(h, "maps",
			reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
				panic("ouch")
			}), opts...)
	}
	for _, tc := range []struct {
		reason  string
		declare declare
		says    []string
	}{
		{"a controller", func(_ *testing.T, rt *fairlead.Runtime, _ *apiserver.Server, own *slog.Logger) {
			failing(rt, own)
		}, []string{"reconciliation failed", "controller=maps", "panic: ouch", "inherited_test.go"}},
		{"a controller of a joined cluster", func(_ *testing.T, rt *fairlead.Runtime, s *apiserver.Server, own *slog.Logger) {
			failing(rt.Join("east", s.Config()), own)
		}, []string{"reconciliation failed", "controller=maps", "panic: ouch"}},
		{"an engine", func(t *testing.T, rt *fairlead.Runtime, _ *apiserver.Server, own *slog.Logger) {
			e := flow.NewEngine(flow.EngineOptions{Logger: own})
			rt.Flows(e)
			fl := flow.New("up", flow.Step("only", flow.Do(func(context.Context, *int) error { return errors.New("ouch") })))
			if _, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "k"}); err != nil {
				t.Error(err)
			}
		}, []string{"fiber ended", "ouch"}},
		{"an added lease", func(t *testing.T, rt *fairlead.Runtime, s *apiserver.Server, own *slog.Logger) {
			l, err := lease.New(s.Config(), lease.Options{Namespace: "default", Name: "it", Logger: own})
			if err != nil {
				t.Fatal(err)
			}
			rt.Add("lease", l.Run)
		}, []string{"leads", "lease=default/it"}},
		{"a relay", func(_ *testing.T, rt *fairlead.Runtime, _ *apiserver.Server, own *slog.Logger) {
			rt.Add("relay", func(ctx context.Context) error {
				db := sql.OpenDB(broken{})
				defer db.Close()
				box, err := outbox.Open(db, outbox.SQLite, outbox.Options{})
				if err != nil {
					return err
				}
				relay := outbox.Relay{Outbox: box, Deliver: func(context.Context, outbox.Entry) error { return nil }, Log: own}
				return relay.Run(ctx)
			})
		}, []string{"cannot use outbox"}},
	} {
		for _, has := range []bool{false, true} {
			t.Run(tc.reason+map[bool]string{false: " without a logger", true: " with its own"}[has], func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, s *apiserver.Server) {
					put(t, s, "x")
					var host, own testlog.Book
					used, silent, log := &host, &own, (*slog.Logger)(nil)
					if has {
						used, silent, log = &own, &host, own.Logger()
					}
					rt := fairlead.New(s.Config(), fairlead.WithLogger(host.Logger()))
					tc.declare(t, rt, s, log)
					r := run(rt)
					synctest.Wait()
					time.Sleep(time.Second)
					for _, want := range tc.says {
						if !strings.Contains(used.String(), want) {
							t.Errorf("the log lacks %q:\n%s", want, used.String())
						}
					}
					if strings.Contains(silent.String(), tc.says[0]) {
						t.Errorf("the other log has lines, too:\n%s", silent.String())
					}
					if err := r.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
