package fairlead_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
)

// A running handler may continue during the drain, and is canceled after it.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		opts      []fairlead.Option
		needs     time.Duration // of the observer, after the end
		cancelled bool
		took      time.Duration
	}{
		{"a handler that ends within the drain is not canceled", nil, 3 * time.Second, false, 3 * time.Second},
		{"a longer handler is canceled", nil, time.Minute, true, 5 * time.Second},
		{"a longer drain", []fairlead.Option{fairlead.WithDrain(2 * time.Minute)}, time.Minute, false, time.Minute},
		{"none", []fairlead.Option{fairlead.WithDrain(-1)}, time.Second, true, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				put(t, s, "x")
				rt := fairlead.New(s.Config(), tc.opts...)
				ended := make(chan struct{})
				observe.Source[corev1.ConfigMap](rt, Maps)
				observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Type != observe.Added {
						return nil
					}
					<-ended
					select {
					case <-time.After(tc.needs):
					case <-ctx.Done():
					}
					if cancelled := ctx.Err() != nil; cancelled != tc.cancelled {
						t.Errorf("cancelled: %v", cancelled)
					}
					return nil
				})
				r := run(rt)
				synctest.Wait()
				begin := time.Now()
				r.stop()
				close(ended)
				if err := <-r.err; err != nil || time.Since(begin) != tc.took {
					t.Errorf("after %v, Run: %v", time.Since(begin), err)
				}
			})
		})
	}
}

// A process that has lost its leadership does not drain, since its writes would be refused.
func TestLostLeadershipDoesNotDrain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		term, lose := context.WithCancel(context.Background())
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(&leadership{term, term.Err}), fairlead.WithDrain(time.Minute))
		observe.Source[corev1.ConfigMap](rt, Maps)
		observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			<-ctx.Done()
			return nil
		})
		r := run(rt)
		synctest.Wait()
		begin := time.Now()
		lose()
		if err := <-r.err; !errors.Is(err, fairlead.ErrNotLeading) || time.Since(begin) != 0 {
			t.Errorf("after %v, Run: %v", time.Since(begin), err)
		}
		r.stop()
	})
}

// failingLeader is a leadership that always fails.
type failingLeader struct{ err error }

func (d failingLeader) Lead(context.Context) (context.Context, func(), error) { return nil, nil, d.err }
func (d failingLeader) Fence(context.Context) error                           { return d.err }

func TestLeadershipThatFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		broken := errors.New("no quorum")
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(failingLeader{broken}))
		observeMaps(rt, &diary{})
		rt.Add("task", func(context.Context) error { return errors.New("was started all the same") })
		if err := rt.Run(t.Context()); !errors.Is(err, broken) || strings.Contains(err.Error(), "started all the same") {
			t.Errorf("Run: %v", err)
		}
		if n := len(s.Log().Requests); n != 0 {
			t.Errorf("%d requests without leadership", n)
		}
	})
}

// Fibers may finish during the drain. Other fibers are canceled and keep their saved positions.
func TestFlowsEndWithTheRuntime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		engine := flow.NewEngine(flow.EngineOptions{})
		wait := func(d time.Duration) *flow.Flow[struct{}] {
			return flow.New("wait", flow.Step("wait",
				func(_ context.Context, f *flow.Fiber[struct{}]) flow.Next { return f.Delay(d) }))
		}
		rt := fairlead.New(s.Config())
		rt.Flows(engine)
		r := run(rt)
		synctest.Wait()
		var handles []flow.Handle
		for _, d := range []time.Duration{3 * time.Second, time.Hour} {
			h, err := wait(d).Start(t.Context(), engine, &struct{}{}, flow.StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		begin := time.Now()
		if err := r.end(); err != nil || time.Since(begin) != 5*time.Second {
			t.Errorf("after %v, Run: %v", time.Since(begin), err)
		}
		if err := handles[0].Wait(t.Context()); err != nil {
			t.Errorf("the fiber that finishes during the drain: %v", err)
		}
		if err := handles[1].Wait(t.Context()); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("the fiber that does not finish: %v", err)
		}
	})
}

func TestStopTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config(), fairlead.WithStopTimeout(3*time.Second))
		rt.Add("stubborn", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		})
		r := run(rt)
		synctest.Wait()
		begin := time.Now()
		if err := r.end(); err == nil || !strings.Contains(err.Error(), "still running after 3s: stubborn") ||
			time.Since(begin) != 3*time.Second {
			t.Errorf("after %v, Run: %v", time.Since(begin), err)
		}
		time.Sleep(time.Hour)
	})
}

// With Degraded the runtime works without the sources that cannot start, and is not ready until they do.
func TestDegraded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		rt := fairlead.New(s.Config(), fairlead.WithDegraded())
		observeMaps(rt, &d)
		var installed atomic.Bool
		observe.SourceFunc[corev1.Secret](rt, "secrets", func(context.Context) ([]cache.Option, error) {
			if !installed.Load() {
				return nil, errors.New("not installed")
			}
			return nil, nil
		})
		observe.Known[corev1.Secret](rt, "secrets")
		r := run(rt)
		synctest.Wait()
		if d := cmp.Diff([]string{"Added x", "Synchronized"}, d.all()); d != "" {
			t.Error(d)
		}
		if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, "not installed") {
			t.Errorf("readyz is %d: %s", code, body)
		}
		installed.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if code, body := get(rt, "/readyz"); code != 200 {
			t.Errorf("readyz is %d: %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestClusterNames(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		rt.Join("east", s.Config())
		rt.Join("east", s.Config())
		if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `another one is named "east"`) {
			t.Errorf("a name that is used twice, Run: %v", err)
		}
		if n := len(s.Log().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// A cluster that joins too late does not run. The log and the error of Run say so with its place, and other clusters
// are not affected.
func TestLateJoin(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		var log bytes.Buffer
		rt := fairlead.New(s.Config(), fairlead.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		observeMaps(rt, &d)
		r := run(rt)
		synctest.Wait()
		east := rt.Join("east", s.Config())
		observeMaps(east, &d)
		if !strings.Contains(log.String(), `/end_test.go:`) ||
			!strings.Contains(log.String(), `cannot join cluster \"east\": the runtime has been run already`) {
			t.Errorf("the late join is not logged: %s", log.String())
		}
		if code, body := get(rt, "/readyz"); code != 200 {
			t.Errorf("readyz is %d: %s", code, body)
		}
		if code, body := get(rt, "/metrics"); code != 200 || strings.Contains(body, `cluster="east"`) ||
			!strings.Contains(body, `fairlead_store_objects{cluster=""`) {
			t.Errorf("metrics: status %d, they include the late cluster or lack the running one: %s", code, body)
		}
		if err := r.end(); err == nil || !strings.Contains(err.Error(), "has been run already") ||
			!strings.Contains(err.Error(), `/end_test.go:`) {
			t.Errorf("Run: %v", err)
		}
		if d := cmp.Diff([]string{"Added x", "Synchronized"}, d.all()); d != "" {
			t.Error(d)
		}
		rt.Join("west", s.Config()) // this runtime never runs, so the late cluster does not either
		if !strings.Contains(log.String(), `\"west\"`) {
			t.Errorf("the late join is not logged: %s", log.String())
		}
	})
}

// A failure on one cluster stops the others, and the error names the cluster.
func TestOneClusterFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		broken := errors.New("broken")
		rt := fairlead.New(s.Config())
		east := rt.Join("east", s.Config())
		observeMaps(rt, &diary{})
		observe.SourceFunc[corev1.ConfigMap](east, Maps,
			func(context.Context) ([]cache.Option, error) { return nil, broken })
		observe.Known[corev1.ConfigMap](east, Maps)
		if err := rt.Run(t.Context()); !errors.Is(err, broken) ||
			!strings.Contains(err.Error(), `cluster "east": cannot start observers`) {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if n := s.Log().Open(apiserver.Match{}); n != 0 {
			t.Errorf("%d open requests", n)
		}
	})
}

// Mistakes in declarations during the run affect nothing else, and Run returns them.
func TestLateMistakes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		east := rt.Join("east", s.Config())
		var d diary
		observeMaps(rt, &d)
		r := run(rt)
		synctest.Wait()
		observe.On(east, "early", ignore)            // its source is declared later
		observe.On(east, "nowhere", ignore).Remove() // removed again
		observe.On(east, "missing", ignore)          // a mistake
		observe.Source[corev1.ConfigMap](rt, Maps)   // another mistake
		observe.Source[corev1.ConfigMap](east, "early")
		put(t, s, "x")
		synctest.Wait()
		err := r.end()
		if !errors.Is(err, observe.ErrNoSource) || !errors.Is(err, observe.ErrDuplicateSource) ||
			strings.Count(err.Error(), "/end_test.go:") != 2 {
			t.Errorf("Run: %v", err)
		}
		if err != nil && (strings.Contains(err.Error(), "early") || strings.Contains(err.Error(), "nowhere")) {
			t.Errorf("Run: %v", err)
		}
		if d := cmp.Diff([]string{"Synchronized", "Added x"}, d.all()); d != "" {
			t.Error(d)
		}
	})
}

func ignore(context.Context, observe.Event[corev1.ConfigMap]) error { return nil }
