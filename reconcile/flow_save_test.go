package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

var statusPatches = apiserver.Match{Verb: "patch", Resource: "gateways", Subresource: "status"}

// A fiber whose end cannot be saved has still ended. It is saved later and does not run again.
func TestTheEndOfAFlowIsSavedWhenTheServerIsBack(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		c, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: s.noted("up")})
		away := b.server.On(statusPatches, apiserver.Drop())
		b.put("web")
		b.start()
		testbed.Settle(time.Minute)
		s.want(t, "it does not need the server", "up")
		if fails := c.Failures(); len(fails) != 1 {
			t.Errorf("failures while its end is not saved: %+v", fails)
		}
		away.Off()
		testbed.Settle(5 * time.Minute)
		s.want(t, "once", "up")
		if g := b.stored(); g.Status.Flow == nil || g.Status.Flow.Reason != "completed" {
			t.Errorf("position %+v", g.Status.Flow)
		}
		if fails := c.Failures(); len(fails) > 0 {
			t.Errorf("failures at the end: %+v", fails)
		}
		b.close(e)
	})
}

// Status changes of steps are written with the position. There is one patch for each step where the fiber parks, and
// one for its end.
func TestTheStatusGoesWithThePosition(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		say := func(n int) flow.StepFunc[gateway] {
			return func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
				task, ok := flow.Use[*reconcile.Task[gateway]](f)
				if c, found := flow.Use[*client.Client](f); !ok || !found || c != task.Client || task.Object != f.Packet {
					return f.Fail(errors.New("the task or the client is not provided"))
				}
				task.SetStatus(func(g *gateway) error { g.Status.Count += n; return nil })
				return f.Next()
			}
		}
		fl := flow.New("up",
			flow.Step("a", say(1)), flow.Step("b", say(10)),
			flow.Step("wait", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next { return f.Await(&s.hold) }),
			flow.Step("c", say(100)), flow.Step("d", say(1000)),
		)
		_, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: fl})
		patches := b.server.On(statusPatches)
		b.put("web")
		b.start()
		if got := b.stored().Status.Count; got != 11 || patches.Hits() != 1 {
			t.Errorf("parked: the status says %d after %d patches, want 11 after one", got, patches.Hits())
		}
		s.hold.Set()
		b.settle()
		if got := b.stored().Status.Count; got != 1111 || patches.Hits() != 2 {
			t.Errorf("at the end: the status says %d after %d patches, want 1111 after two", got, patches.Hits())
		}
		b.close(e)
	})
}

// A condition of a fiber has the generation that the fiber has seen, even if the spec has changed since.
func TestConditionsHaveTheGenerationOfTheFiber(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		type stamp struct{ Seen, Observed int64 }
		var stamps []stamp
		fl := flow.New("up",
			flow.Step("wait", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next { return f.Await(&s.hold) }),
			flow.Step("say", func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
				task, _ := flow.Use[*reconcile.Task[gateway]](f)
				task.SetStatus(func(g *gateway) error {
					reconcile.SetCondition(g, &g.Status.Conditions, "Ready", metav1.ConditionTrue, "Up", "")
					stamps = append(stamps, stamp{f.Packet.Generation, g.Status.Conditions[0].ObservedGeneration})
					return nil
				})
				return f.Next()
			}),
		)
		_, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: fl, Mode: flow.Coalesce})
		b.put("web")
		b.start()
		b.change(size(2))
		b.settle()
		s.hold.Set()
		b.settle()
		if diff := cmp.Diff([]stamp{{1, 1}, {2, 2}}, stamps); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if g := b.stored(); g.Generation != 2 || g.Status.Conditions[0].ObservedGeneration != 2 {
			t.Errorf("stored is generation %d with %+v", g.Generation, g.Status.Conditions)
		}
		b.close(e)
	})
}

// Fibers have a key that begins with the controller, and share the workers by namespace.
func TestFibersAreFoundByKey(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		_, e := b.flows(&s, false)
		b.put("web")
		b.start()
		h, ok := e.Find(reconcile.FiberKey("gateways", web))
		if info := h.Info(); !ok || info.Key != "gateways/a/web" || info.Group != "a" || info.Path != "up/wait" {
			t.Errorf("found %v: %+v", ok, info)
		}
		b.close(e)
	})
}
