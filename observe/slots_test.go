package observe_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/shard"
)

// TestSlotsComeAndGo: objects of a lost slot are not deleted, and objects of a gained slot are initial. Collections
// have the objects of held slots.
func TestSlotsComeAndGo(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		layout := shard.Layout{Slots: 64}
		slotA, slotB := layout.SlotOf("a", ""), layout.SlotOf("other", "")
		if slotA == slotB {
			t.Fatal("both namespaces are in one slot")
		}
		share := source.NewSharding(layout)
		hold := func(slots ...int) {
			t.Helper()
			if err := share.Set(layout.Set(slots...)); err != nil {
				t.Fatal(err)
			}
			if err := share.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		h.put("a/x", "1")
		h.put("other/x", "1")
		if err := share.Set(layout.Set(slotA)); err != nil {
			t.Fatal(err)
		}
		sourceOf(h, Maps, source.ShardWith(share))
		var all, deletions, async story
		observe.On(h, Maps, all.observe)
		observe.On(h, Maps, deletions.observe, observe.Only(observe.OnDeleted))
		observe.On(h, Maps, async.observe, observe.Async(4))
		h.start()
		synctest.Wait()
		for _, s := range []*story{&all, &async} {
			if diff := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, s.take()); diff != "" {
				t.Error(diff)
			}
		}
		hold(slotB)
		for _, s := range []*story{&all, &async} {
			got := s.take()
			if diff := cmp.Diff([]string{"Left a/x 1=1", "Added initial other/x =1"}, got); diff != "" {
				t.Error(diff)
			}
		}
		h.put("a/x", "2")
		h.remove("other/x")
		synctest.Wait()
		hold(slotA)
		if diff := cmp.Diff([]string{"Deleted other/x 1=1", "Added initial a/x =2"}, all.take()); diff != "" {
			t.Error(diff)
		}
		hold()
		if diff := cmp.Diff([]string{"Left a/x 2=2"}, all.take()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"Deleted other/x 1=1"}, deletions.take()); diff != "" {
			t.Errorf("deletions: %s", diff)
		}
	})
}

// TestDerivedObjectsLeave: a derived object leaves with its source object.
func TestDerivedObjectsLeave(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		share := source.NewSharding(shard.Layout{})
		if err := share.Set(share.Layout().All()); err != nil {
			t.Fatal(err)
		}
		h.put("a/x", "1")
		h.put("a/y", "22")
		sourceOf(h, Maps, source.ShardWith(share))
		observe.Filter(h, "short", Maps, func(c *corev1.ConfigMap) bool { return len(c.Data["v"]) == 1 })
		var got story
		observe.On(h, "short", got.observe)
		h.start()
		synctest.Wait()
		got.take()
		if err := share.Set(share.Layout().Set()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"Left a/x 1=1"}, got.take()); diff != "" {
			t.Error(diff)
		}
	})
}
