package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A failure is logged in one line by the part that decides what follows, with all the facts.
func TestFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	labelled := func(ctx context.Context, c *client.Client, g *testbed.Gateway) error {
		return client.Modify(ctx, c, g, func(g *testbed.Gateway) error {
			g.Labels = map[string]string{"a": "b"}
			return nil
		})
	}
	fibers := func(rt *fairlead.Runtime, step func(context.Context, *testbed.Gateway) error) {
		engine := flow.NewEngine(flow.EngineOptions{})
		rt.Flows(engine)
		reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, testbed.Gateway]{
			Flow:     flow.New("up", flow.Step("label", flow.Do(step))),
			Position: func(g *testbed.Gateway) **flow.Position { return &g.Status.Flow },
		}, reconcile.MaxInterval(-1), reconcile.MaxAttempts(1))
	}
	reconciler := func(rt *fairlead.Runtime, fn func(context.Context, *testbed.Gateway) error) {
		reconcile.New(rt, "gateways", reconcile.Func[testbed.Gateway](
			func(ctx context.Context, g *testbed.Gateway) (reconcile.Result, error) {
				return reconcile.Terminal(fn(ctx, g))
			}))
	}
	graph := func(rt *fairlead.Runtime, page func(context.Context, *testbed.Gateway) (*corev1.ConfigMap, error)) {
		g := dependent.For[testbed.Gateway]()
		dependent.Add(g, "page", page)
		g.Status(func(g *testbed.Gateway, r *dependent.Report) { r.Into(&g.Status.Conditions) })
		g.Controller(rt, "gateways", reconcile.MaxInterval(-1), reconcile.WithBackoff(reconcile.Backoff{Base: time.Hour}))
	}
	plain := func(context.Context, *testbed.Gateway) error { return errors.New("ouch") }
	for _, tc := range []struct {
		reason  string
		declare func(rt *fairlead.Runtime)
		says    []string
	}{
		{"a reconciler fails", func(rt *fairlead.Runtime) { reconciler(rt, plain) }, []string{
			"level=ERROR", "reconciliation failed", "key=a/web", "controller=gateways", "class=stopped", "attempts=1",
		}},
		{"a request of a reconciler is refused", func(rt *fairlead.Runtime) {
			reconciler(rt, func(ctx context.Context, g *testbed.Gateway) error { return labelled(ctx, rt.Client(), g) })
		}, []string{"reconciliation failed", "key=a/web", "request=", "cannot patch Gateway a/web"}},
		{"a fiber of a controller fails", func(rt *fairlead.Runtime) { fibers(rt, plain) }, []string{
			"reconciliation failed", "key=a/web", "controller=gateways", "trail=label:fail", "up/label: ouch",
		}},
		{"a request of a fiber of a controller is refused", func(rt *fairlead.Runtime) {
			fibers(rt, func(ctx context.Context, g *testbed.Gateway) error { return labelled(ctx, rt.Client(), g) })
		}, []string{"reconciliation failed", "key=a/web", "trail=", "request=", "up/label: cannot patch Gateway a/web"}},
		{"a request of another fiber is refused", func(rt *fairlead.Runtime) {
			engine := flow.NewEngine(flow.EngineOptions{})
			rt.Flows(engine)
			fl := flow.New("up", flow.Step("label", flow.Do(func(ctx context.Context, g *testbed.Gateway) error {
				return labelled(ctx, rt.Client(), g)
			})))
			rt.Add("starter", func(ctx context.Context) error {
				_, err := fl.Start(ctx, engine, testbed.New("a", "web"), flow.StartOptions{Key: "a/web"})
				return err
			})
		}, []string{"fiber ended", "key=a/web", "path=up/label", "trail=", "up/label: cannot patch Gateway a/web"}},
		{"the function of a graph node fails", func(rt *fairlead.Runtime) {
			graph(rt, func(context.Context, *testbed.Gateway) (*corev1.ConfigMap, error) { return nil, errors.New("ouch") })
		}, []string{
			"level=ERROR", "reconciliation failed", "key=a/web", "controller=gateways", "class=retryable", "attempts=1",
			"next=", "trail=", "cannot compute the desired state of page: ouch",
		}},
		{"the child of a graph node is refused", func(rt *fairlead.Runtime) {
			graph(rt, func(context.Context, *testbed.Gateway) (*corev1.ConfigMap, error) {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "page"}}, nil
			})
		}, []string{
			"level=ERROR", "reconciliation failed", "key=a/web", "controller=gateways", "class=retryable", "attempts=1",
			"next=", "trail=", "request=", "cannot apply page (ConfigMap a/page)",
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, err := apiserver.New(apiserver.Options{Pipe: true, Resources: testbed.Resources()})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if _, err := s.Put(testbed.New("a", "web")); err != nil {
					t.Fatal(err)
				}
				spec := func(r apiserver.Request) bool { return r.Subresource == "" }
				refuse := apiserver.Answer(metav1.Status{
					Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "ouch",
				})
				s.On(apiserver.Match{Verb: "patch", Resource: "gateways", Func: spec}, refuse)
				s.On(apiserver.Match{Verb: "patch", Resource: "configmaps"}, refuse)
				var log testlog.Book
				rt := fairlead.New(s.Config(), fairlead.WithLogger(log.Logger()), fairlead.WithScheme(testbed.Scheme()))
				tc.declare(rt)
				r := run(rt)
				synctest.Wait()
				time.Sleep(time.Second)
				var logged []string
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "ouch") || !strings.Contains(line, "level=INFO") {
						logged = append(logged, line)
					}
				}
				if len(logged) != 1 {
					t.Errorf("the failure is logged %d times:\n%s", len(logged), strings.Join(logged, ""))
				}
				for _, want := range tc.says {
					if !strings.Contains(strings.Join(logged, ""), want) {
						t.Errorf("the line lacks %q: %s", want, logged)
					}
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
