package real_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/testbed"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/source"
)

// course is what the steps of a flow did, in one process after the other.
type course struct {
	mu   sync.Mutex
	ran  []string
	open flow.Signal // lets wait go on
}

func (c *course) step(name string) flow.StepFunc[gateway] {
	return func(_ context.Context, f *flow.Fiber[gateway]) flow.Next {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ran = append(c.ran, name)
		if task, ok := flow.Use[*reconcile.Task[gateway]](f); ok {
			task.SetStatus(func(g *gateway) error { g.Status.Seen = f.Packet.Generation; return nil })
		}
		return f.Next()
	}
}

func (c *course) so(steps ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Equal(c.ran, steps)
}

// process runs a controller that brings gateways up with a flow, and returns what ends it.
func (b *bench) process(c *course) (stop func()) {
	b.t.Helper()
	rt := fairlead.New(env.Config(b.t), fairlead.WithScheme(testbed.Scheme()), fairlead.WithSource(source.Namespaces(b.namespace)))
	engine := flow.NewEngine(flow.EngineOptions{})
	rt.Flows(engine)
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[gateway, gateway]{
		Flow: flow.New("up",
			flow.Step("a", c.step("a"), flow.Undo(c.step("undo-a"))),
			flow.Step("wait", func(ctx context.Context, f *flow.Fiber[gateway]) flow.Next {
				c.step("wait")(ctx, f)
				return f.Await(&c.open)
			}),
			flow.Step("c", c.step("c"), flow.Undo(c.step("undo-c"))),
		),
		Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
	})
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the runtime failed: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// A flow per object: its position is in the status, another process goes on there, a change of the spec preempts it, and the
// deletion undoes what was done.
func TestAFlowPerObject(t *testing.T) {
	b := setup(t)
	var c course
	stop := b.process(&c)
	b.create("web")
	parked := func(generation int64) func() bool {
		return func() bool {
			g := b.get("web")
			p := g.Status.Flow
			return p != nil && !p.Ended && p.Step == "wait" && p.Generation == generation && g.Status.Seen == generation
		}
	}
	await(b.ctx, t, parked(1))
	stop()
	b.process(&c)
	await(b.ctx, t, func() bool { return c.so("a", "wait", "wait") })
	g := b.get("web")
	if err := client.Modify(b.ctx, b.user, g, func(g *gateway) error { g.Spec.Size = 2; return nil }); err != nil {
		t.Fatal(err)
	}
	await(b.ctx, t, parked(2))
	c.open.Set()
	await(b.ctx, t, func() bool {
		p := b.get("web").Status.Flow
		return p != nil && p.Ended && p.Reason == "completed" && p.Generation == 2
	})
	if !c.so("a", "wait", "wait", "a", "wait", "c") {
		t.Errorf("steps that ran: %v", c.ran)
	}
	if err := b.user.Delete(b.ctx, b.get("web")); err != nil {
		t.Fatal(err)
	}
	await(b.ctx, t, func() bool { return b.get("web") == nil })
	if !c.so("a", "wait", "wait", "a", "wait", "c", "undo-c", "undo-a") {
		t.Errorf("steps that ran: %v", c.ran)
	}
}
