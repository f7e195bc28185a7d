package reconcile_test

import (
	"context"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard"
)

// slotOf returns a layout, and the slot of the tests' gateways.
func slotOf() (shard.Layout, int) {
	l := shard.Layout{Slots: 2}
	return l, l.SlotOf(web.Namespace, "")
}

// TestSlotLeavesAndComes: an object of a lost slot is not cleaned up and does not wait. When the slot comes back, the
// object is reconciled again without a change.
func TestSlotLeavesAndComes(t *testing.T) {
	bubble(t, func(b *bench) {
		layout, slot := slotOf()
		h := source.NewSharding(layout)
		hold := func(set shard.Set) {
			t.Helper()
			if err := h.Set(set); err != nil {
				t.Fatal(err)
			}
			if err := h.Wait(b.ctx); err != nil {
				t.Fatal(err)
			}
			b.settle()
		}
		b.put("web")
		b.cleaner(&cleaner{cleanup: func(context.Context, int, *gateway) (reconcile.Result, error) {
			t.Error("an object of a lost slot is cleaned up")
			return reconcile.Done, nil
		}}, reconcile.Primary(reconcile.From(source.ShardWith(h))))
		b.host.Start(b.ctx)
		hold(layout.Set(slot))
		b.wantCalls(1, "the slot is here")
		hold(layout.Set())
		b.wantCalls(1, "it has left")
		b.delete("web") // the finalizer keeps the object
		b.settle()
		b.wantCalls(1, "others have it")
		if stored := testbed.Stored(b.server, web); stored == nil || len(stored.Finalizers) == 0 {
			t.Error("the finalizer of a lost object was removed")
		}
	})
}

// TestSlotComesBack: an unchanged object is reconciled again, since another process may have had it.
func TestSlotComesBack(t *testing.T) {
	bubble(t, func(b *bench) {
		layout, slot := slotOf()
		h := source.NewSharding(layout)
		if err := h.Set(layout.Set(slot)); err != nil {
			t.Fatal(err)
		}
		b.put("web")
		enter, leave := make(chan struct{}), make(chan struct{})
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			if n == 2 {
				close(enter)
				<-leave
				return reconcile.Done, context.DeadlineExceeded // would be retried
			}
			return reconcile.Done, nil
		}, reconcile.Primary(reconcile.From(source.ShardWith(h))))
		b.start()
		b.wantCalls(1, "the first list")
		b.change(size(2))
		<-enter
		b.change(size(3)) // one more reconciliation, afterwards
		b.settle()
		if err := h.Set(layout.Set()); err != nil {
			t.Fatal(err)
		}
		b.settle()
		close(leave)
		testbed.Settle(3 * 60 * 1e9)
		b.wantCalls(2, "what ran went on, and nothing follows")
		if err := h.Set(layout.Set(slot)); err != nil {
			t.Fatal(err)
		}
		b.settle()
		b.wantCalls(3, "it has come back")
		if why := b.last().info.Reasons; len(why) != 1 || why[0].Type != reconcile.Initial {
			t.Errorf("reconciled because of %v", why)
		}
	})
}
