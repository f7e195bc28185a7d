package fairlead_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

func reconcileMaps(h reconcile.Host, opts ...reconcile.Option) {
	reconcile.New(h, "maps",
		reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			return reconcile.Done, nil
		}), opts...)
}

// readiness checks the code and the text of /readyz.
func readiness(t *testing.T, rt *fairlead.Runtime, when string, code int, says ...string) {
	t.Helper()
	synctest.Wait()
	got, body := get(rt, "/readyz")
	if got != code {
		t.Errorf("%s: readyz is %d, want %d: %s", when, got, code, body)
	}
	for _, want := range says {
		if !strings.Contains(body, want) {
			t.Errorf("%s: readyz lacks %q:\n%s", when, want, body)
		}
	}
}

// A source that is not listed is named with the reason, whatever watches it.
func TestReadinessNamesTheReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		watch  func(rt *fairlead.Runtime)
	}{
		{"a reconciler", func(rt *fairlead.Runtime) { reconcileMaps(rt) }},
		{"an observer", func(rt *fairlead.Runtime) { observeMaps(rt, &diary{}) }},
		{"a client", func(rt *fairlead.Runtime) {
			_, _ = rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		}},
		{"a collection", func(rt *fairlead.Runtime) {
			observe.Known[corev1.ConfigMap](rt, Maps)
			observe.Source[corev1.ConfigMap](rt, Maps)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				forbidden := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
				rt := fairlead.New(s.Config())
				tc.watch(rt)
				r := run(rt)
				time.Sleep(time.Second)
				readiness(t, rt, "forbidden", 503, "Forbidden", "forbidden")
				forbidden.Off()
				time.Sleep(time.Minute)
				readiness(t, rt, "allowed", 200)
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A degraded runtime runs without a controller whose kind does not exist, and reports it. It starts the controller when
// the kind is served.
func TestDegradedController(t *testing.T) {
	t.Parallel()
	for _, degraded := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			opts := []fairlead.Option{fairlead.WithScheme(testbed.Scheme())}
			if degraded {
				opts = append(opts, fairlead.WithDegraded())
			}
			rt := fairlead.New(s.Config(), opts...)
			reconciled := 0
			reconcile.New(rt, "gateways",
				reconcile.Func[testbed.Gateway](func(context.Context, *testbed.Gateway) (reconcile.Result, error) {
					reconciled++
					return reconcile.Done, nil
				}))
			r := run(rt)
			time.Sleep(time.Second)
			if degraded {
				readiness(t, rt, "without the kind", 503, "controller gateways: cannot start", "CustomResourceDefinition")
			} else {
				readiness(t, rt, "without the kind", 503, "stopping")
			}
			for _, resource := range testbed.Resources() {
				s.Register(resource)
			}
			testbed.Put(t, s, testbed.New("a", "web"))
			time.Sleep(time.Minute)
			if degraded {
				readiness(t, rt, "with the kind", 200, "ready")
			}
			if degraded != (reconciled == 1) {
				t.Errorf("degraded %v: reconciled %d times", degraded, reconciled)
			}
			if err := r.end(); degraded != (err == nil) {
				t.Errorf("degraded %v: Run returns %v", degraded, err)
			}
		})
	}
}

// Two clusters of one runtime may have controllers of the same name.
func TestControllersOfOneNameOnTwoClusters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		reconcileMaps(rt)
		reconcileMaps(rt.Join("east", s.Config()))
		r := run(rt)
		time.Sleep(time.Second)
		readiness(t, rt, "running", 200)
		_, body := get(rt, "/debug/controllers")
		if !strings.Contains(body, "\nmaps ") || !strings.Contains(body, "\neast/maps ") {
			t.Errorf("the page lacks one:\n%s", body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// Run returns an error when an engine is closed under a controller, but not when the runtime itself closes the engine.
func TestEngineClosedUnderAController(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			for _, resource := range testbed.Resources() {
				s.Register(resource)
			}
			testbed.Put(t, s, testbed.New("a", "web"))
			rt := fairlead.New(s.Config(), fairlead.WithScheme(testbed.Scheme()))
			engine := flow.NewEngine(flow.EngineOptions{})
			rt.Flows(engine)
			var hold flow.Signal
			reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, testbed.Gateway]{
				Flow: flow.New("up", flow.Step("wait", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
					return f.Await(&hold)
				})),
				Position: func(g *testbed.Gateway) **flow.Position { return &g.Status.Flow },
			})
			r := run(rt)
			time.Sleep(time.Second)
			if early {
				if err := engine.Close(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
			}
			err := r.end()
			if early && (err == nil || !strings.Contains(err.Error(), reconcile.ErrEngineClosed.Error())) ||
				!early && err != nil {
				t.Errorf("closed early: %v; Run returns %v", early, err)
			}
		})
	}
}
