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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

var leases = apiserver.Match{Group: "coordination.k8s.io", Resource: "leases"}

func TestLeaderElection(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		process := func(name string) *running {
			rt := fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "operator"))
			observe.Source[corev1.ConfigMap](rt, Maps)
			observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type == observe.Added {
					d.add(name)
				}
				return nil
			})
			return run(rt)
		}
		one := process("one")
		time.Sleep(time.Second)
		two := process("two")
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]string{"one"}, d.all()); d != "" {
			t.Errorf("while the first one leads: %s", d)
		}
		if code, body := get(two.Runtime, "/readyz"); code != 200 || !strings.Contains(body, "standby") {
			t.Errorf("readyz of the second: %d %s", code, body)
		}
		leads := func(r *running) float64 { return gathered(t, r.Registry(), "fairlead_leading")[""] }
		if leads(one) != 1 || leads(two) != 0 {
			t.Errorf("the metric is %v for the leader, and %v for the other one", leads(one), leads(two))
		}
		if err := one.end(); err != nil {
			t.Error(err)
		}
		if leads(one) != 0 {
			t.Error("the metric is still set after the end")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if d := cmp.Diff([]string{"one", "two"}, d.all()); d != "" {
			t.Errorf("after the first one has stopped: %s", d)
		}
		three := process("three")
		begin := time.Now()
		s.On(leases, apiserver.Answer(apiserver.Failure(500)))
		if err := <-two.err; !errors.Is(err, fairlead.ErrNotLeading) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("Run ended %v after the last renewal", took)
		}
		if err := three.end(); err != nil {
			t.Errorf("an end while waiting for leadership is an error: %v", err)
		}
	})
}

// leadership is a leadership that a test takes away.
type leadership struct {
	term  context.Context
	fence func() error
}

func (l *leadership) Lead(context.Context) (context.Context, func(), error) {
	return l.term, func() {}, nil
}

func (l *leadership) Fence(context.Context) error { return l.fence() }

func TestNoRequestAfterLeadershipWasLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		term, lose := context.WithCancel(context.Background())
		var writes []error
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(&leadership{term, term.Err}))
		observe.Source[corev1.ConfigMap](rt, Maps, cache.Namespaces("a"))
		observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				write := func(name string) {
					c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: name}}
					writes = append(writes, rt.Client().Create(ctx, c))
				}
				write("before")
				lose()
				write("after")
			}
			return nil
		})
		r := run(rt)
		if err := <-r.err; !errors.Is(err, fairlead.ErrNotLeading) {
			t.Errorf("Run: %v", err)
		}
		if len(writes) != 2 || writes[0] != nil || !errors.Is(writes[1], client.ErrFenced) {
			t.Errorf("writes: %v", writes)
		}
		if n := s.Log().Count(apiserver.Match{Verb: "create"}); n != 1 {
			t.Errorf("%d writes were sent", n)
		}
		r.stop()
	})
}

// Writes of a reconciler carry the version of their base. A write that is still in flight after a takeover therefore
// conflicts.
func TestWritesOfALeaderCarryTheirVersion(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		term := t.Context()
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(&leadership{term, term.Err}))
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(ctx context.Context, c *corev1.ConfigMap) (reconcile.Result, error) {
				merge := client.RawPatch(types.MergePatchType, []byte(`{"data":{"seen":"yes"}}`))
				return reconcile.Done, rt.Client().Patch(ctx, c, merge)
			}))
		r := run(rt)
		time.Sleep(time.Second)
		synctest.Wait()
		patches := s.Log().Select(apiserver.Match{Verb: "patch", Resource: "configmaps"})
		if len(patches) == 0 {
			t.Error("nothing was patched")
		}
		for _, p := range patches {
			if !strings.Contains(string(p.Body), `"resourceVersion"`) {
				t.Errorf("a patch carries no version: %s", p.Body)
			}
		}
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// ofContext is a leadership whose term derives from the context.
type ofContext struct{ *leadership }

func (l ofContext) Lead(ctx context.Context) (context.Context, func(), error) {
	term, done := context.WithCancel(ctx)
	l.fence = term.Err
	return term, done, nil
}

// A term that ends with the program is not lost: running handlers are drained, and Run returns no error.
func TestTermThatEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		drained := false
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(ofContext{&leadership{}}))
		begun := make(chan struct{})
		observe.Source[corev1.ConfigMap](rt, Maps)
		observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				close(begun)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
					drained = true
				}
			}
			return nil
		})
		r := run(rt)
		<-begun
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if !drained {
			t.Error("the running observer was canceled")
		}
	})
}
