package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A step that continues after its fiber was canceled can write nothing, whatever context it uses. Its successor waits
// until the step has returned.
func TestCanceledFiberWritesNothing(t *testing.T) {
	for reason, test := range map[string]struct {
		cancel func(b *bench, l *turns)
		cause  error // the cause with which its writes are refused
		next   bool  // another fiber follows
	}{
		"a newer spec": {func(b *bench, _ *turns) { b.change(size(2)) }, flow.ErrPreempted, true},
		"the deletion": {func(b *bench, _ *turns) {
			if err := b.client().Delete(b.ctx, testbed.New("a", "web")); err != nil {
				b.t.Error(err)
			}
		}, flow.ErrPreempted, true}, // by its undo
		"another process leads": {func(_ *bench, l *turns) { l.lose() }, flow.ErrInterrupted, false},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var s script
				l := &turns{begin: make(chan struct{})}
				close(l.begin)
				canceled, leave := make(chan struct{}), make(chan struct{})
				var late error
				first := true
				fl := flow.New("up", flow.Step("slow", func(ctx context.Context, f *flow.Fiber[gateway]) flow.Next {
					if !first {
						_ = s.note("next")
						return f.Next()
					}
					first = false
					<-ctx.Done()
					close(canceled)
					<-leave // the step ignores the cancellation
					late = client.ModifyStatus(context.WithoutCancel(ctx), b.client(), f.Packet,
						func(g *gateway) error { g.Status.Count = 99; return nil })
					_ = s.note("late")
					return f.Next()
				}, flow.Undo(flow.Do(func(context.Context, *gateway) error { return s.note("undo") }))))
				_, e := b.fibers(&s, reconcile.Fibers[gateway, gateway]{Flow: fl}, reconcile.Finalizer(finalizer),
					reconcile.Leader(l))
				b.put("web")
				b.start()
				test.cancel(b, l)
				<-canceled
				testbed.Settle(10 * time.Second)
				s.want(t, "nothing begins beside it")
				close(leave)
				b.settle()
				if !errors.Is(late, test.cause) {
					t.Errorf("the late write: %v, want it refused because of %v", late, test.cause)
				}
				want := []string{"late"}
				switch {
				case reason == "the deletion":
					want = append(want, "undo")
				case test.next:
					want = append(want, "next")
				}
				s.want(t, reason, want...)
				if g := b.stored(); g != nil && g.Status.Count != 0 {
					t.Errorf("the late write succeeded: %+v", g.Status)
				}
				b.close(e)
			})
		})
	}
}
