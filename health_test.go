package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		gate := apiserver.NewGate()
		s.On(apiserver.Match{Resource: "configmaps"}, apiserver.HoldRequest(gate))
		rt := fairlead.New(s.Config(), fairlead.WithStaleness(10*time.Minute))
		observeMaps(rt, &diary{}, observe.Name("waiting"))
		check := func(when string, healthy, ready int, says string) {
			t.Helper()
			synctest.Wait()
			if code, body := get(rt, "/healthz"); code != healthy {
				t.Errorf("%s: healthz is %d, want %d: %s", when, code, healthy, body)
			}
			if code, body := get(rt, "/readyz"); code != ready || !strings.Contains(body, says) {
				t.Errorf("%s: readyz is %d, want %d and %q: %s", when, code, ready, says, body)
			}
		}
		check("before", 200, 503, "not started")
		r := run(rt)
		check("starting", 200, 503, "maps (waiting, ")
		gate.Open()
		time.Sleep(time.Minute)
		check("synced", 200, 200, "ready")
		s.Down()
		time.Sleep(9 * time.Minute)
		check("a short outage", 200, 200, "ready")
		time.Sleep(2 * time.Minute)
		check("a long outage", 503, 503, "maps : state is 1")
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		check("recovered", 200, 200, "ready")
		if err := r.end(); err != nil {
			t.Error(err)
		}
		check("stopped", 200, 503, "stopping")
	})
}

// A part that reports that it is not ready makes the process not ready, and has no other effect.
func TestAddReady(t *testing.T) {
	t.Parallel()
	for name, always := range map[string]bool{"it works": false, "it serves": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				rt := fairlead.New(s.Config())
				if always {
					rt.AddAlways("server", func(ctx context.Context) error { <-ctx.Done(); return nil })
				}
				says := errors.New("it is not configured")
				panics := false
				rt.AddReady("hooks", func() error {
					if panics {
						panic("broken")
					}
					return says
				})
				r := run(rt)
				synctest.Wait()
				if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, "hooks: it is not configured") {
					t.Errorf("not ready: %d %s", code, body)
				}
				if code, body := get(rt, "/healthz"); code != 200 {
					t.Errorf("healthz: %d %s", code, body)
				}
				says = nil
				if code, body := get(rt, "/readyz"); code != 200 {
					t.Errorf("ready: %d %s", code, body)
				}
				panics = true
				if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, "hooks: it panicked: broken") {
					t.Errorf("panics: %d %s", code, body)
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	rt := fairlead.New(nil)
	rt.AddReady("unset", nil)
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"unset"`) {
		t.Errorf("Run: %v", err)
	}
}

// An observer that its policy stops before it is synced makes the runtime not ready, and has no other effect.
func TestStoppedObserverIsNotReady(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		rt := fairlead.New(s.Config())
		observeMaps(rt, &d)
		observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return errors.New("broken") },
			observe.OnFailure(observe.Stop, 0))
		r := run(rt)
		synctest.Wait()
		if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, "it was stopped: broken") {
			t.Errorf("readyz is %d: %s", code, body)
		}
		put(t, s, "y")
		synctest.Wait()
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if d := cmp.Diff([]string{"Added x", "Synchronized", "Added y"}, d.all()); d != "" {
			t.Error(d)
		}
	})
}

// A working watch is never stale, however long it lasts without events.
func TestQuietIsNotStale(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		r := run(rt)
		for range 3 * 60 {
			time.Sleep(time.Minute)
			if code, body := get(rt, "/readyz"); code != 200 {
				t.Fatalf("readyz is %d: %s", code, body)
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestNeverReachedIsStale(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		s.On(apiserver.Match{Resource: "configmaps"}, apiserver.BlackHole())
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		r := run(rt)
		time.Sleep(6 * time.Minute)
		if code, body := get(rt, "/healthz"); code != 503 {
			t.Errorf("healthz is %d: %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// Readiness and health include the watches of reconcilers, not only those of observers.
func TestHealthOfReconcilers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		reconcile.New[corev1.ConfigMap](rt, "maps",
			reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		forbidden := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
		r := run(rt)
		synctest.Wait()
		if code, body := get(rt, "/readyz"); code != 503 {
			t.Errorf("ready although nothing was listed: %d %s", code, body)
		}
		time.Sleep(6 * time.Minute)
		if code, body := get(rt, "/healthz"); code != 200 || !strings.Contains(body, "configmaps: Forbidden") {
			t.Errorf("six minutes of 403, which a restart cannot end: %d %s", code, body)
		}
		if _, body := get(rt, "/metrics"); !strings.Contains(body,
			`fairlead_store_staleness_seconds{cluster="",group="",namespace="",resource="configmaps"`) {
			t.Errorf("the metrics lack the watch")
		}
		forbidden.Off()
		time.Sleep(time.Minute)
		if code, body := get(rt, "/readyz"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// A missing name, for example from an unset environment variable, must not disable the election.
func TestLeaderElectionWithoutName(t *testing.T) {
	t.Parallel()
	for _, at := range [][2]string{{"operators", ""}, {"", "gateways"}, {"", ""}} {
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			rt := fairlead.New(s.Config(), fairlead.WithLeaderElection(at[0], at[1]))
			worked := false
			rt.Add("work", func(ctx context.Context) error { worked = true; <-ctx.Done(); return nil })
			r := run(rt)
			time.Sleep(time.Minute)
			if err := r.end(); err == nil || worked {
				t.Errorf("%q: Run returned %v, worked without leadership: %v", at, err, worked)
			}
		})
	}
}

// A restart cannot make the API server serve or permit a resource. The refusal is reported, and the process stays
// healthy. An outage after a refusal counts from its own start.
func TestRefusalDoesNotRestart(t *testing.T) {
	t.Parallel()
	kinds := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for says, refuse := range map[string]func(*apiserver.Server){
		"NotFound": func(s *apiserver.Server) { s.Withdraw(kinds) },
		"Forbidden": func(s *apiserver.Server) {
			s.On(apiserver.Match{Resource: kinds.Resource}, apiserver.Answer(apiserver.Failure(403)))
			s.DropConnections()
		},
	} {
		t.Run(says, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				rt := fairlead.New(s.Config())
				observeMaps(rt, &diary{})
				r := run(rt)
				synctest.Wait()
				if code, body := get(rt, "/readyz"); code != 200 || len(rt.Status(0).Conditions) > 0 {
					t.Fatalf("at first: %d %s", code, body)
				}
				refuse(s)
				for range 60 {
					time.Sleep(time.Minute)
					if code, body := get(rt, "/healthz"); code != 200 {
						t.Fatalf("healthz is %d: %s", code, body)
					}
				}
				want := "configmaps: " + says
				if _, body := get(rt, "/healthz"); !strings.Contains(body, want) {
					t.Errorf("healthz does not report it: %s", body)
				}
				if status := rt.Status(0); len(status.Conditions) != 1 || !strings.HasPrefix(status.Conditions[0], want) ||
					len(status.Problems) > 0 {
					t.Errorf("status: %q, problems %q", status.Conditions, status.Problems)
				}
				if scope := rt.Status(0).Sources[0].Status[0]; !scope.Refused || scope.Silence > time.Minute ||
					scope.Staleness < time.Hour {
					t.Errorf("the source: %+v", scope)
				}
				if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, want) {
					t.Errorf("readyz is %d: %s", code, body)
				}
				s.Down()
				time.Sleep(4 * time.Minute)
				if code, body := get(rt, "/healthz"); code != 200 {
					t.Errorf("a short outage after a long refusal: %d %s", code, body)
				}
				time.Sleep(2 * time.Minute)
				if code, body := get(rt, "/healthz"); code != 503 {
					t.Errorf("a long outage after a refusal: %d %s", code, body)
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A process that serves stays ready for its callers while a resource is refused, and reports the refusal.
func TestRefusalLeavesServersReady(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		rt.AddAlways("server", func(ctx context.Context) error { <-ctx.Done(); return nil })
		r := run(rt)
		synctest.Wait()
		s.Withdraw(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
		time.Sleep(10 * time.Minute)
		if code, body := get(rt, "/readyz"); code != 200 || !strings.Contains(body, "configmaps: NotFound") {
			t.Errorf("readyz is %d: %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
