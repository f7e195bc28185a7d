package fairlead_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/shard/group"
)

// sharer runs a member with an observer.
func sharer(s *apiserver.Server, name string, fn func(*fairlead.Runtime) func(context.Context,
	observe.Event[corev1.ConfigMap]) error, opts ...cache.Option,
) *running {
	rt := fairlead.New(s.Config(), fairlead.WithShards("default", "replicas", func(o *group.Options) {
		o.Member, o.Layout.Slots = name, 1
	}))
	observe.Source[corev1.ConfigMap](rt, Maps, opts...)
	observe.On(rt, Maps, fn(rt))
	return run(rt)
}

// A slot is released when the running call for one of its objects has returned. Later events, even Left, may be
// dropped.
func TestObserverEndsBeforeItsSlotIsReleased(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for _, name := range []string{"x", "y", "z"} {
			put(t, s, name)
		}
		var d diary
		busy := make(chan struct{})
		one := sharer(s, "one", func(*fairlead.Runtime) func(context.Context, observe.Event[corev1.ConfigMap]) error {
			first := true
			return func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type == observe.Synchronized {
					return nil
				}
				d.add("one begins " + e.Type.String())
				if first {
					first = false
					close(busy)
					time.Sleep(5 * time.Second)
				}
				if d.add("one ends " + e.Type.String()); ctx.Err() != nil {
					t.Errorf("the call was canceled: %v", context.Cause(ctx))
				}
				return nil
			}
		})
		<-busy
		one.stop() // while its slot moves
		two := sharer(s, "two", func(*fairlead.Runtime) func(context.Context, observe.Event[corev1.ConfigMap]) error {
			return func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type != observe.Synchronized {
					d.add("two " + e.Type.String())
				}
				return nil
			}
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		want := []string{
			"one begins Added", "one ends Added", "one begins Left", "one ends Left", "two Added", "two Added",
			"two Added",
		}
		got := d.all()
		if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("got %q", got)
		}
		for _, p := range []*running{one, two} {
			if err := p.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

// An object whose deletion event is pending when its slot leaves gets a Left event. Observers that count objects need
// one event, and observers that clean up deleted objects must not run.
func TestPendingDeletionOfALostSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		put(t, s, "y")
		var d diary
		busy := make(chan struct{})
		one := sharer(s, "one", func(*fairlead.Runtime) func(context.Context, observe.Event[corev1.ConfigMap]) error {
			return func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type == observe.Modified {
					close(busy)
					time.Sleep(5 * time.Second)
				}
				if e.Type != observe.Synchronized {
					d.add(e.Key.Name + " " + e.Type.String())
				}
				return nil
			}
		})
		time.Sleep(time.Second)
		if _, err := s.Change(configMaps, "a", "x", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"changed": "yes"})
		}); err != nil {
			t.Fatal(err)
		}
		<-busy
		if err := s.Remove(configMaps, "a", "y"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := one.end(); err != nil {
			t.Error(err)
		}
		got := d.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"x Added", "x Left", "x Modified", "y Added", "y Left"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A call that does not return is canceled with a cause after the drain, and its writes are refused.
func TestObserverIsCanceledWithoutALease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		busy, cause, writes := make(chan struct{}), make(chan error, 1), make(chan error, 2)
		one := sharer(s, "one", func(rt *fairlead.Runtime) func(context.Context, observe.Event[corev1.ConfigMap]) error {
			write := func(ctx context.Context, name string) error {
				return rt.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name}})
			}
			return func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type != observe.Added || e.Key.Name != "x" {
					return nil
				}
				writes <- write(ctx, "before")
				close(busy)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				writes <- write(context.WithoutCancel(ctx), "after")
				return nil
			}
		}, cache.Namespaces("a"))
		<-busy
		begun := time.Now()
		s.On(leases, apiserver.Answer(apiserver.Failure(500))) // the lease cannot be renewed
		if err := <-cause; !errors.Is(err, group.ErrLost) {
			t.Errorf("the cause is %v", err)
		}
		if took := time.Since(begun); took > 9*time.Second {
			t.Errorf("the call continued for %v", took)
		}
		if err := <-writes; err != nil {
			t.Error(err)
		}
		if err := <-writes; !errors.Is(err, client.ErrFenced) {
			t.Errorf("a write without a lease: %v", err)
		}
		s.ClearFaults()
		if err := one.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestHealthWithoutSlots: a member without slots sends no requests and is healthy. It stays healthy when it takes over.
func TestHealthWithoutSlots(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		type handler = func(context.Context, observe.Event[corev1.ConfigMap]) error
		record := func(name string) func(*fairlead.Runtime) handler {
			return func(*fairlead.Runtime) handler {
				return func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Type == observe.Added {
						d.add(name)
					}
					return nil
				}
			}
		}
		one := sharer(s, "one", record("one"))
		time.Sleep(time.Minute)
		two := sharer(s, "two", record("two"))
		healthy := func(when string, minutes int) {
			t.Helper()
			for range minutes {
				time.Sleep(time.Minute)
				if code, body := get(two.Runtime, "/healthz"); code != 200 {
					t.Errorf("%s: healthz is %d: %s", when, code, body)
					return
				}
				for _, source := range two.Runtime.Status(0).Sources {
					for _, scope := range source.Status {
						if scope.Silence > 5*time.Minute || scope.Staleness > 5*time.Minute {
							t.Errorf("%s: the source: %+v", when, scope)
							return
						}
					}
				}
			}
		}
		healthy("without slots", 30)
		if err := one.end(); err != nil {
			t.Error(err)
		}
		healthy("with slots", 10)
		if diff := cmp.Diff([]string{"one", "two"}, d.all()); diff != "" {
			t.Errorf("added, -want +got:\n%s", diff)
		}
		if err := two.end(); err != nil {
			t.Error(err)
		}
	})
}
