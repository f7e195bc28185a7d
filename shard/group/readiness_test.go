package group

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

// unreadyFor is the function of Group.Ready of a process in a test: the slots for which it is not ready.
type unreadyFor struct {
	set      atomic.Pointer[shard.Set]
	progress atomic.Bool // it is becoming ready
}

func (u *unreadyFor) slots(slots ...int) {
	set := (shard.Layout{Slots: 8}).Set(slots...)
	u.set.Store(&set)
}

func (u *unreadyFor) unready() (shard.Set, string) {
	if set := u.set.Load(); set != nil && u.progress.Load() {
		return *set, ""
	} else if set != nil {
		return *set, "maps (Failing: Forbidden)"
	}
	return shard.Set{}, ""
}

// all are the slots of the tests.
var all = []int{0, 1, 2, 3, 4, 5, 6, 7}

// withReadiness starts three processes with functions of Group.Ready.
func withReadiness(t *testing.T, play func(t *testing.T, w *world, p []*process, u []*unreadyFor)) {
	bubble(t, func(t *testing.T, w *world) {
		w.cover = coverage{Program: "p", Kinds: []string{"maps"}}
		var processes []*process
		var lacks []*unreadyFor
		for _, name := range []string{"one", "two", "three"} {
			u := &unreadyFor{}
			w.unready = u.unready
			processes, lacks = append(processes, w.start(name, random(), Options{})), append(lacks, u)
		}
		w.play(10 * time.Second)
		w.within(0, 8, "the start")
		play(t, w, processes, lacks)
	})
}

// TestNotReady: a member that is not ready for its slots gives them away after a minute, one at a time, and says so.
// After five minutes it takes one slot to try, and gives that away, too. When it has become ready, it gets its share.
func TestNotReady(t *testing.T) {
	withReadiness(t, func(t *testing.T, w *world, p []*process, u []*unreadyFor) {
		before := p[0].g.Held()
		u[0].slots(all...)
		w.play(50 * time.Second)
		if got := p[0].g.Held(); got != before {
			t.Fatalf("It holds %s before a minute has passed, want %s.", got, before)
		}
		report := p[1].g.Status().Group
		for _, m := range report.Members {
			if (m.Name == "one") != (len(m.Unready) > 0 && m.Reason == "maps (Failing: Forbidden)") {
				t.Errorf("A member is reported as %+v.", m)
			}
		}
		slot := 0
		for slot = range before.Slots() {
			break
		}
		causes := explain(p[1].g.snapshot(), slot)
		if len(causes) != 1 || causes[0].Type != why.HeldBy || !strings.Contains(causes[0].Message, "is not ready for it") {
			t.Errorf("Another member explains %+v.", causes)
		}
		most := 0
		for range 200 {
			w.play(100 * time.Millisecond)
			moving := 0
			for _, move := range p[1].g.Status().Group.Moving {
				if move.From == "one" {
					moving++
				}
			}
			most = max(most, moving)
		}
		if got := p[0].g.Held(); !got.IsEmpty() || most > 1 {
			t.Errorf("It holds %s, and %d slots moved at once.", got, most)
		}
		w.within(0, 8, "it has given its slots away")
		if log := w.logged(); strings.Count(log, "msg=notReady") != 1 || !strings.Contains(log, "Forbidden") {
			t.Errorf("It does not say once why it is not ready:\n%s", log)
		}
		held := 0 // in seconds, within the next six minutes
		for range 6 * 60 {
			w.play(time.Second)
			if n := p[0].g.Held().Len(); n > 1 {
				t.Fatalf("It holds %d slots to try.", n)
			} else if n == 1 {
				held++
			}
		}
		if held < 55 || held > 70 {
			t.Errorf("It held a slot to try for %d of 360 seconds, want a minute.", held)
		}
		u[0].slots()
		w.play(6 * time.Minute)
		if n := p[0].g.Held().Len(); n < 2 || n > 3 {
			t.Errorf("It is ready and holds %d of 8 slots.", n)
		}
		if newest := p[0].g.snapshot().known.record.newest(); newest != 0 {
			t.Errorf("All are ready, and coverages differ: %d.", newest)
		}
		w.within(0, 8, "all are ready")
	})
}

// TestNotReadyForOne: a member that is ready for all slots but one gives only that away, and does not get it back for
// five minutes, though the next member is not ready for it either.
func TestNotReadyForOne(t *testing.T) {
	withReadiness(t, func(t *testing.T, w *world, p []*process, u []*unreadyFor) {
		bad := 0
		for bad = range p[0].g.Held().Slots() {
			break
		}
		for _, each := range u {
			each.slots(bad)
		}
		holders := []string{}
		n := p[0].g.Held().Len()
		for range 5 * 60 {
			w.play(time.Second)
			for _, each := range p {
				if each.g.Held().Holds(bad) && (len(holders) == 0 || holders[len(holders)-1] != each.name) {
					holders = append(holders, each.name)
				}
			}
		}
		if len(holders) < 2 || len(holders) > 3 || holders[0] != "one" || slices.Contains(holders[1:], "one") {
			t.Errorf("The slot was held by %v, one after another.", holders)
		}
		if got := p[0].g.Held().Len(); got != n-1 {
			t.Errorf("The first one had %d slots and has %d.", n, got)
		}
		w.within(0, 8, "five minutes")
	})
}

// TestSlowReady checks that a member keeps its slots while it becomes ready, however long that takes. A member that has
// given its slots away gets its share back only when it is ready for the slot that it tries.
func TestSlowReady(t *testing.T) {
	withReadiness(t, func(t *testing.T, w *world, p []*process, u []*unreadyFor) {
		before := p[0].g.Held()
		u[0].progress.Store(true)
		u[0].slots(all...)
		w.play(3 * time.Minute)
		if got := p[0].g.Held(); got != before {
			t.Errorf("It makes progress and holds %s, want %s.", got, before)
		}
		u[0].progress.Store(false)
		w.play(70 * time.Second)
		if got := p[0].g.Held(); !got.IsEmpty() {
			t.Errorf("It fails and holds %s.", got)
		}
		u[0].progress.Store(true)
		w.play(7 * time.Minute)
		if n := p[0].g.Held().Len(); n != 1 {
			t.Errorf("It makes progress with the slot that it tries, and holds %d.", n)
		}
		u[0].slots()
		w.play(5 * time.Second)
		if n := p[0].g.Held().Len(); n < 2 {
			t.Errorf("It is ready and holds %d slots.", n)
		}
	})
}

// TestNobodyReady: if no member is ready for any slot, all keep theirs. So does the only member.
func TestNobodyReady(t *testing.T) {
	withReadiness(t, func(t *testing.T, w *world, p []*process, u []*unreadyFor) {
		before := []shard.Set{}
		for i, each := range u {
			before = append(before, p[i].g.Held())
			each.slots(all...)
		}
		w.play(10 * time.Minute)
		for i, each := range p {
			if each.g.Held() != before[i] {
				t.Errorf("%s holds %s, want %s.", each.name, each.g.Held(), before[i])
			}
		}
		p[1].stop()
		p[2].stop()
		w.play(5 * time.Minute)
		if n := p[0].g.Held().Len(); n != 8 {
			t.Errorf("The only member holds %d of 8 slots.", n)
		}
	})
}

// TestNotReadyBesideFormer: with a member of the former release in the group, which states nothing, no slot is given
// away, since that member does not read generations.
func TestNotReadyBesideFormer(t *testing.T) {
	withReadiness(t, func(t *testing.T, w *world, p []*process, u []*unreadyFor) {
		w.cover, w.unready = coverage{}, nil
		w.start("former", random(), Options{})
		w.play(5 * time.Second)
		before := p[0].g.Held()
		u[0].slots(all...)
		w.play(3 * time.Minute)
		if p[0].g.Held() != before {
			t.Errorf("It holds %s, want %s.", p[0].g.Held(), before)
		}
	})
}
