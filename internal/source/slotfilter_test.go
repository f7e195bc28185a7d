package source

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/shard"
)

// shardedMemory is a memory that records the slots that it holds.
type shardedMemory struct{ memory }

func (m *shardedMemory) Hold(set shard.Set)         { m.note("hold %s", set) }
func (m *shardedMemory) Gain(shard.Set) Replacement { return m.Replace() }

var fourSlots = shard.Layout{Slots: 4, By: shard.Namespace}

// namespaceIn returns a namespace in a slot.
func namespaceIn(layout shard.Layout, slot int) string {
	for n := 0; ; n++ {
		ns := fmt.Sprintf("ns-%d", n)
		if set := layout.Set(slot); set.HasBytes([]byte(ns), nil) {
			return ns
		}
	}
}

// TestSlotFilterFollows: the sink drops lost slots, even if they have come back, and Wait waits for the gained ones.
func TestSlotFilterFollows(t *testing.T) {
	t.Parallel()
	h, sink := NewSharding(fourSlots), &shardedMemory{}
	f := newSlotFilter(h, &namespaces{}, &Counters{})
	if _, changed := f.adopt(sink); changed || f.isAssigned() || !f.holdsNone() {
		t.Fatal("slots are known before they are set")
	}
	some := func(slots ...int) shard.Set { return fourSlots.Set(slots...) }
	starts := fourSlots.Starts()
	starts[1]--
	moved, err := fourSlots.WithStarts(1, starts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason  string
		set     []shard.Set
		list    bool        // list everything before the next step
		holds   []shard.Set // calls of the sink
		toList  shard.Set
		empties bool
	}{
		{"the first slots", []shard.Set{some(0, 1)}, true, []shard.Set{some(0, 1)}, some(0, 1), false},
		{"one more", []shard.Set{some(0, 1, 2)}, false, []shard.Set{some(0, 1, 2)}, some(2), false},
		{"that slot is lost before it is listed", []shard.Set{some(0, 1)}, true, []shard.Set{some(0, 1)}, some(), false},
		{"lost and back", []shard.Set{some(0), some(0, 1)}, true, []shard.Set{some(0), some(0, 1)}, some(1), false},
		{"all lost and back", []shard.Set{some(), some(0)}, true, []shard.Set{some(), some(0)}, some(0), true},
		{
			"lost, and a boundary moves",
			[]shard.Set{some(), moved.Set(1)},
			true,
			[]shard.Set{some(), moved.Set(1)},
			moved.Set(1), true,
		},
		{
			"others come by newer boundaries",
			[]shard.Set{moved.Set(1, 3)},
			true,
			[]shard.Set{moved.Set(1, 3)},
			moved.Set(3),
			false,
		},
		{"one stays", []shard.Set{moved.Set(3), moved.Set(0, 3)}, true, []shard.Set{moved.Set(0, 3)}, moved.Set(0), false},
		{"none", []shard.Set{moved.Set()}, false, []shard.Set{moved.Set()}, moved.Set(), true},
	} {
		sink.calls = nil
		for _, set := range c.set {
			if err := h.Set(set); err != nil {
				t.Fatal(err)
			}
		}
		change, changed := f.adopt(sink)
		if !changed || change.empties != c.empties || f.toList() != c.toList {
			t.Errorf("%s: changed %v, empties %v, to list %s", c.reason, changed, change.empties, f.toList())
		}
		var want []string
		for _, set := range c.holds {
			want = append(want, "hold "+set.String())
		}
		if diff := cmp.Diff(want, sink.calls); diff != "" {
			t.Errorf("%s: calls, -want +got:\n%s", c.reason, diff)
		}
		f.publish()
		if p := f.progress(); p.left != f.turn || (p.listed == f.turn) != c.toList.IsEmpty() {
			t.Errorf("%s: progress %+v at turn %d", c.reason, p, f.turn)
		}
		if c.list {
			if f.allListed(); f.progress().listed != f.turn || !f.toList().IsEmpty() {
				t.Errorf("%s: progress %+v after a list", c.reason, f.progress())
			}
		}
	}
}

// TestSlotFilterDrops: objects of other slots are dropped and counted, whether or not the server applies the selector.
func TestSlotFilterDrops(t *testing.T) {
	t.Parallel()
	var counts Counters
	h := NewSharding(fourSlots)
	f := newSlotFilter(h, &namespaces{}, &counts)
	if err := h.Set(fourSlots.Set(0, 1)); err != nil {
		t.Fatal(err)
	}
	f.adopt(&shardedMemory{})
	in := func(slot int) *event { return &event{obj: *header(namespaceIn(fourSlots, slot), "a", "1")} }
	gained := fourSlots.Set(1)
	if f.dropsChange(in(0)) || !f.dropsChange(in(2)) || f.dropsListed(in(1), nil) || !f.dropsListed(in(0), &gained) {
		t.Error("the filter keeps objects of other slots or drops objects of its own")
	}
	want := Counters{
		WireObjects: 2, WireEvents: 2, WireBytes: 8, FilteredObjects: 1, FilteredEvents: 1, FilteredBytes: 4,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("counters, -want +got:\n%s", diff)
	}
	if !f.hasDropped(false) || f.holdsAll() {
		t.Error("the filter does not know that it has dropped objects")
	}
	all := newSlotFilter(nil, &namespaces{}, &counts)
	if all.dropsChange(in(3)) || !all.holdsAll() || all.holdsNone() || all.current() != nil {
		t.Error("a scope without slots drops objects")
	}
}
