package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// turns is a leadership that a test gives and takes.
type turns struct {
	mu    sync.Mutex
	begin chan struct{} // closed when the process may lead
	lose  context.CancelFunc
	terms int // number of terms that were given back
}

func (l *turns) Lead(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	begin := l.begin
	l.mu.Unlock()
	select {
	case <-begin:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	term, cancel := context.WithCancel(ctx)
	l.lose, l.begin = cancel, make(chan struct{})
	return term, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.terms++
	}, nil
}

func (l *turns) Fence(term context.Context) error { return context.Cause(term) }

func TestFlowWaitsWhileAnotherProcessLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		s, l := &script{}, &turns{begin: make(chan struct{})}
		_, e := b.flows(s, false, reconcile.Leader(l))
		b.put("web")
		b.start()
		s.want(t, "it does not lead yet")
		close(l.begin)
		b.settle()
		s.want(t, "it leads", "a", "wait")
		l.lose()
		b.settle()
		if l.terms != 1 || e.Live() != 0 {
			t.Errorf("%d terms released and %d live fibers, want 1 and 0", l.terms, e.Live())
		}
		if p := b.stored().Status.Flow; p == nil || p.Ended || p.Step != "wait" {
			t.Errorf("position %+v, want that of the step wait", p)
		}
		s.hold.Set()
		b.settle()
		s.want(t, "it leads no more", "a", "wait")
		close(l.begin)
		b.settle()
		s.want(t, "it goes on in its next term", "a", "wait", "wait", "c")
		b.restart(e)
		b.start()
	})
}

func TestSpecWaitsForACoalescingFlow(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		_, e := b.fibers(s, reconcile.Fibers[gateway, gateway]{Flow: s.flow(false), Mode: flow.Coalesce})
		b.put("web")
		b.start()
		b.change(size(2))
		b.change(size(3))
		b.settle()
		s.want(t, "the fiber is not disturbed", "a", "wait")
		s.hold.Set()
		b.settle()
		s.want(t, "the last spec is worked on once", "a", "wait", "c", "a", "wait", "c")
		if g := b.stored(); g.Status.Seen != g.Generation {
			t.Errorf("seen generation %d, want %d", g.Status.Seen, g.Generation)
		}
		b.restart(e)
		b.start()
	})
}

func TestFlowOfADeletedObject(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		_, e := b.flows(s, true, reconcile.Finalizer(finalizer))
		b.put("web")
		b.start()
		b.change(func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }) // another client removes the finalizer
		b.delete("web")
		b.settle()
		if e.Live() != 0 {
			t.Error("the fiber is alive")
		}
		b.put("web")
		b.settle()
		s.want(t, "its successor starts from the beginning", "a", "wait", "a", "wait")
		b.restart(e)
		b.start()
	})
}

// Own writes of steps and positions lead to no reconciliation. A foreign change leads to one.
func TestWritesOfAFlowAreOwnEchoes(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		_, e := b.flows(s, false)
		b.put("web")
		b.start()
		runs := func(want int, reason string) {
			t.Helper()
			got := 0
			families, err := b.host.Registry().Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "fairlead_reconcile_total" {
					for _, m := range f.GetMetric() {
						got += int(m.GetCounter().GetValue())
					}
				}
			}
			if got != want {
				t.Fatalf("%s: %d reconciliations, want %d", reason, got, want)
			}
		}
		if g := b.stored(); g.Status.Flow == nil || g.Status.Seen != g.Generation {
			t.Fatalf("status %+v: the flow has written nothing", g.Status)
		}
		runs(1, "the fiber is parked")
		b.change(label("x"))
		b.settle()
		runs(2, "somebody has changed a label")
		s.hold.Set()
		b.settle()
		runs(3, "the fiber has ended, which is looked at once")
		s.want(t, "and it ran once", "a", "wait", "c")
		b.restart(e)
		b.start()
	})
}

func TestUndoHappensOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		s.hold.Set()
		c, e := b.flows(&s, true)
		b.put("web")
		b.start()
		s.want(t, "it is up", "a", "wait", "c")
		away := b.server.On(apiserver.Match{Verb: "patch", Resource: "gateways"}, apiserver.Drop())
		b.change(func(u *unstructured.Unstructured) {
			now := metav1.Now()
			u.SetDeletionTimestamp(&now)
		})
		testbed.Settle(10 * time.Minute)
		if len(c.Failures()) != 1 {
			t.Errorf("neither the end nor the finalizer can be written, and the failures are %v", c.Failures())
		}
		away.Off()
		testbed.Settle(10 * time.Minute)
		s.want(t, "however often the removal of the finalizer is tried", "a", "wait", "c", "undo-c", "undo-a")
		if g := b.stored(); g != nil {
			t.Errorf("the object still exists, with finalizers %v", g.Finalizers)
		}
		b.close(e)
	})
}

// The failure of a fiber is reported once, also if no reconciliation asks for it. By then its object has another spec
// or is gone.
func TestFailureOfAnObsoleteFiber(t *testing.T) {
	t.Parallel()
	for reason, then := range map[string]func(b *bench){
		"another spec": func(b *bench) { b.change(size(2)) },
		"gone": func(b *bench) {
			if err := b.server.Remove(testbed.Gateways, web.Namespace, web.Name); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				var log logbook
				busy, fails := make(chan struct{}), make(chan struct{})
				fl := flow.New("up", flow.Step("a", flow.Do(func(_ context.Context, g *gateway) error {
					if g.Name != "web" || g.Generation > 1 {
						return nil
					}
					<-fails
					return errors.New("ouch")
				})))
				_, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{
					Flow: fl,
					Packet: func(_ context.Context, task *reconcile.Task[gateway]) (*gateway, error) {
						if task.Object.Name == "other" {
							<-busy
						}
						return task.Object, nil
					},
				}, reconcile.Workers(1), log.option())
				defer e.Close(context.Background())
				b.put("web")
				b.start()
				b.put("other")
				b.settle()
				close(fails)
				b.settle()
				then(b)
				b.settle()
				close(busy)
				b.settle()
				if n := strings.Count(log.String(), "ouch"); n != 1 ||
					!strings.Contains(log.String(), "an obsolete fiber failed") {
					t.Errorf("the failure is logged %d times:\n%s", n, log.String())
				}
			})
		})
	}
}
