package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// overseer is a host from which its controllers inherit.
type overseer struct {
	*testbed.Host
	from reconcile.Inherited
	seen []*reconcile.Controller
}

func (o *overseer) Inherit() reconcile.Inherited { return o.from }
func (o *overseer) Oversee(c *reconcile.Controller) error {
	o.seen = append(o.seen, c)
	return nil
}
func (o *overseer) list() []*reconcile.Controller { return o.seen }
func (o *overseer) page(query string) (string, int) {
	w := httptest.NewRecorder()
	reconcile.DebugHandler(o.list).ServeHTTP(w, httptest.NewRequest("GET", "/debug/controllers"+query, nil))
	return w.Body.String(), w.Code
}

func (b *bench) overseer(from reconcile.Inherited) *overseer {
	return &overseer{Host: b.host, from: from}
}

// nilError is an error whose methods panic, as those of a nil pointer in an error interface do.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }
func (e *nilError) Unwrap() error { return e.err }

// Every kind of failure is in the log of the host, with the stack of a panic. A controller's own logger overrides that
// of the host.
func TestFailuresAreLoggedByTheHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		do     func() (reconcile.Result, error)
		want   []string
	}{
		{
			"an error", func() (reconcile.Result, error) { return reconcile.Retry(errors.New("no luck")) },
			[]string{"no luck", "class=retryable", "key=a/web"},
		},
		{
			"a terminal error", func() (reconcile.Result, error) { return reconcile.Terminal(errors.New("no luck")) },
			[]string{"no luck", "class=stopped"},
		},
		{"a panic", func() (reconcile.Result, error) { panic("ouch") }, []string{"panic: ouch", "visible_test.go"}},
		{
			"an error that panics", func() (reconcile.Result, error) { return reconcile.Done, (*nilError)(nil) },
			[]string{"nil pointer", "visible_test.go"},
		},
		{"an error and a time", func() (reconcile.Result, error) {
			return reconcile.After(time.Minute), errors.New("no luck")
		}, []string{"no luck", "after=1m0s", "afterHonoured=true"}},
		{"a terminal error and a time", func() (reconcile.Result, error) {
			_, err := reconcile.Terminal(errors.New("no luck"))
			return reconcile.After(time.Minute), err
		}, []string{"no luck", "after=1m0s", "afterHonoured=false"}},
		{
			"a negative time", func() (reconcile.Result, error) { return reconcile.After(-time.Second), nil },
			[]string{"level=ERROR", "negative", "after=-1s"},
		},
	} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.reason, ", own logger ", own), func(t *testing.T) {
				bubble(t, func(b *bench) {
					var host, its logbook
					h := b.overseer(reconcile.Inherited{Logger: host.Logger()})
					opts := []reconcile.Option{reconcile.MaxInterval(-1)}
					used, silent := &host, &its
					if own {
						opts, used, silent = append(opts, its.option()), &its, &host
					}
					reconcile.New[gateway](h, "gateways",
						reconcile.Func[gateway](func(context.Context, *gateway) (reconcile.Result, error) {
							return tc.do()
						}), opts...)
					b.put("web")
					b.start()
					for _, want := range tc.want {
						if !strings.Contains(used.String(), want) {
							t.Errorf("the log lacks %q:\n%s", want, used.String())
						}
					}
					if silent.String() != "" {
						t.Errorf("the other log has lines, too: %s", silent.String())
					}
				})
			})
		}
	}
}

// A failure with an outdated spec, and a panic of a stopped reconciliation, are also logged.
func TestOvertakenFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opts   []reconcile.Option
		do     func(ctx context.Context) error
	}{
		{"an error after the spec has changed", nil, func(context.Context) error { return errors.New("ouch") }},
		{"a panic of a preempted run", []reconcile.Option{reconcile.Preempt()}, func(ctx context.Context) error {
			<-ctx.Done()
			panic("ouch")
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var log logbook
				b.controller(func(ctx context.Context, n int, _ *gateway) (reconcile.Result, error) {
					if n > 1 {
						return reconcile.Done, nil
					}
					b.change(size(2))
					<-time.After(time.Second) // the change is observed
					return reconcile.Done, tc.do(ctx)
				}, append(tc.opts, log.option())...)
				b.put("web")
				b.start()
				testbed.Settle(time.Minute)
				if !strings.Contains(log.String(), "ouch") {
					t.Errorf("the failure is not logged:\n%s", log.String())
				}
			})
		})
	}
}

// The flow engine uses the logger of the host, and a panic in a step is logged with its stack.
func TestEnginesInheritTheLogger(t *testing.T) {
	bubble(t, func(b *bench) {
		var log logbook
		h := b.overseer(reconcile.Inherited{Logger: log.Logger()})
		engine := flow.NewEngine(flow.EngineOptions{})
		b.closers = append(b.closers, func() {
			if err := engine.Close(b.ctx); err != nil {
				t.Error(err)
			}
		})
		reconcile.Flow(h, "gateways", engine, reconcile.Fibers[gateway, gateway]{
			Flow:     flow.New("up", flow.Step("only", flow.Do(func(context.Context, *gateway) error { panic("ouch") }))),
			Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
		}, reconcile.MaxInterval(-1))
		b.put("web", func(g *gateway) { g.Status.Flow = &flow.Position{Flow: "down", Generation: 1, Step: "only"} })
		b.start()
		for _, want := range []string{
			"position is not resumed", "reconciliation failed", "panic: ouch", "visible_test.go",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, log.String())
			}
		}
	})
}

// The page lists every failing object with its error, attempts and next attempt, sorted and bounded, as text and as
// JSON.
func TestControllersPage(t *testing.T) {
	bubble(t, func(b *bench) {
		h := b.overseer(reconcile.Inherited{Cluster: "east"})
		fail := func(_ context.Context, g *gateway) (reconcile.Result, error) {
			switch g.Name {
			case "web":
				return reconcile.Retry(errors.New("no luck\nat all"))
			case "bad":
				return reconcile.Terminal(errors.New("never"))
			case "mad":
				panic(strings.Repeat("x", 5000))
			}
			return reconcile.Done, nil
		}
		reconcile.New[gateway](h, "gateways", reconcile.Func[gateway](fail), reconcile.MaxInterval(-1))
		reconcile.New[gateway](h, "bystanders", noop)
		if body, _ := h.page(""); !strings.Contains(body, "not started") {
			t.Errorf("before the start:\n%s", body)
		}
		for _, name := range []string{"web", "bad", "mad", "good"} {
			b.put(name)
		}
		b.start()
		body, _ := h.page("")
		text := strings.Join(strings.Fields(body), " ")
		for _, want := range []string{
			"east/bystanders Gateway.test.fairlead.io/v1 running 0 0 0 0",
			"east/gateways Gateway.test.fairlead.io/v1 running 0 2 0 0 3",
			"east/gateways a/bad stopped 1", "rests never", "no luck at all", "panic: xxx",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %q:\n%s", want, body)
			}
		}
		if strings.Index(text, "bystanders") > strings.Index(text, "gateways Gate") ||
			strings.Index(text, "a/bad") > strings.Index(text, "a/web") {
			t.Errorf("the page is not sorted:\n%s", body)
		}
		all, _ := h.page("?format=json&controller=gateways")
		var d inspect.Controller
		if err := json.Unmarshal([]byte(all), &d); err != nil {
			t.Fatalf("%v: %s", err, all)
		}
		var got []string
		for _, f := range d.Failures {
			got = append(got, fmt.Sprint(f.Key, " ", f.Class, " ", len(f.Error) <= 1024, " ", f.Next != nil, " ", f.Stack != "",
				" ", f.Attempts > 0))
		}
		if diff := cmp.Diff([]string{
			"a/bad stopped true false false true", "a/mad retryable true true true true",
			"a/web retryable true true false true",
		}, got); diff != "" {
			t.Error(diff)
		}
		if d.Failed != 3 || d.State != inspect.StateRunning || d.Cluster != "east" ||
			!strings.Contains(d.At, "visible_test.go:") {
			t.Errorf("described as %+v", d)
		}
		if one, _ := h.page("?limit=1&format=json"); strings.Count(one, `"key"`) != 1 || strings.Count(one, "\n") != 2 {
			t.Errorf("limit=1 shows %s", one)
		}
		if one, _ := h.page("?key=a/web&class=retryable"); strings.Contains(one, "a/bad") || !strings.Contains(one, "a/web") {
			t.Errorf("key=a/web shows %s", one)
		}
		if _, code := h.page("?limit=x"); code != 400 {
			t.Errorf("a limit that is not a number: status %d", code)
		}
	})
}

// An Event is written if the object causes the failure, once for equal failures, and in no other case.
func TestEventsOfFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		do     func() error
		opts   []reconcile.Option
		want   []string
	}{
		{"an external failure", func() error { return errors.New("unreachable") }, nil, nil},
		{"a conflict", conflictError, nil, nil},
		{
			"terminal", func() error { _, err := reconcile.Terminal(errors.New("no such size")); return err }, nil,
			[]string{"ReconcileFailed: no such size"},
		},
		{"panic", func() error { panic("ouch") }, nil, []string{"ReconcilePanicked: panic: ouch"}},
		{
			"exhausted", func() error { return errors.New("unreachable") },
			[]reconcile.Option{reconcile.MaxAttempts(2)},
			[]string{"AttemptsExhausted: attempts exhausted after 2: unreachable"},
		},
		{"not wanted", func() error { panic("ouch") }, []reconcile.Option{reconcile.WithoutEvents()}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.Done, tc.do() },
					tc.opts...)
				b.put("web")
				b.start()
				testbed.Settle(10 * time.Minute)
				var got []string
				all, err := b.server.Objects(events)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range all {
					got = append(got, fmt.Sprint(e.Object["reason"], ": ", e.Object["note"]))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Without permission to write Events the log reports it once, and the reconciler continues.
func TestForbiddenEvents(t *testing.T) {
	bubble(t, func(b *bench) {
		var log logbook
		b.server.On(apiserver.Match{Resource: "events"}, apiserver.Answer(apiserver.Failure(403)))
		b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { panic("ouch") }, log.option())
		b.put("web")
		b.start()
		testbed.Settle(10 * time.Minute)
		if n := strings.Count(log.String(), "cannot write an Event"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
		if b.count() < 3 {
			t.Errorf("%d attempts in ten minutes", b.count())
		}
	})
}
