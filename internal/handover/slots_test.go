package handover_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/shard"
)

var (
	layout   = shard.Layout{By: shard.UID, Slots: 8}
	errMoved = errors.New("the slot moves")
	errCut   = errors.New("the drain takes too long")
)

// slotKey is the context key of the slot.
type slotKey struct{}

func base(slot int) context.Context { return context.WithValue(context.Background(), slotKey{}, slot) }

// model is the expected state of Slots. All of its operations run on one goroutine.
type model struct {
	t     *testing.T
	slots *handover.Slots
	held  shard.Set
	work  [8][]*handover.Tenure // pieces of work in progress; nil for those of Add
	drain [8]*drain             // of the slots that leave
	waits sync.WaitGroup
}

// drain is a call of Lose whose Wait has not returned, and the slots that the model and Wait have reported.
type drain struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	left     shard.Set // slots with work
	wantCut  shard.Set
	returned atomic.Bool

	mu    sync.Mutex
	quiet []int
	cut   []shard.Set
}

// TestSlots plays random schedules, one operation after the other, and compares each step with the model.
func TestSlots(t *testing.T) {
	t.Parallel()
	seed.Play(t, 50, func(t *testing.T, s uint64) {
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, slots: handover.New(layout, errMoved, base), held: layout.Set()}
			r := seed.Rand(s, "schedule")
			for range 400 {
				m.step(r)
			}
			for slot := range m.work { // all work ends, so every Wait returns
				for len(m.work[slot]) > 0 {
					m.leave(slot, 0)
				}
			}
			m.waits.Wait()
		})
	})
}

func (m *model) step(r *rand.Rand) {
	slot := r.IntN(layout.Slots)
	switch n := r.IntN(20); {
	case n < 8:
		m.enter(slot)
	case n < 9:
		m.slots.Add(slot)
		m.work[slot] = append(m.work[slot], nil)
	case n < 15 && len(m.work[slot]) > 0:
		m.leave(slot, r.IntN(len(m.work[slot])))
	case n < 17:
		m.gain(m.some(r))
	case n < 19:
		m.lose(m.some(r))
	case m.drain[slot] != nil:
		d := m.drain[slot]
		if d.ctx.Err() == nil {
			d.wantCut = d.left
			d.cancel(errCut)
		}
	}
	synctest.Wait()
	m.check()
}

// some returns a random set of slots that do not leave.
func (m *model) some(r *rand.Rand) shard.Set {
	set := layout.Set()
	for slot, d := range m.drain {
		if d == nil && r.IntN(3) == 0 {
			set = set.Union(layout.Set(slot))
		}
	}
	return set
}

func (m *model) enter(slot int) {
	t, ok := m.slots.Enter(slot)
	switch {
	case ok != m.held.Holds(slot):
		m.t.Fatalf("Enter(%d) admits work: %t; %s are held", slot, ok, m.held)
	case !ok:
		return
	case t.Context.Value(slotKey{}) != slot || t.Context.Err() != nil || t.Stay.Err() != nil:
		m.t.Fatalf("work on slot %d begins with contexts %v and %v", slot, t.Context, t.Stay)
	}
	m.work[slot] = append(m.work[slot], t)
}

func (m *model) leave(slot, i int) {
	m.work[slot] = slices.Delete(m.work[slot], i, i+1)
	m.slots.Leave(slot)
	if d := m.drain[slot]; d != nil && len(m.work[slot]) == 0 {
		d.left = d.left.Minus(layout.Set(slot))
		m.drain[slot] = nil
	}
}

func (m *model) gain(slots shard.Set) {
	m.held = m.held.Union(slots)
	m.slots.Gain(slots)
}

// lose begins a drain. After Lose has returned no work may be admitted, whether Wait runs or not.
func (m *model) lose(slots shard.Set) {
	d := &drain{left: layout.Set()}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	m.held = m.held.Minus(slots)
	lost := m.slots.Lose(slots)
	for slot := range slots.Slots() {
		m.enter(slot)
		if len(m.work[slot]) > 0 {
			d.left, m.drain[slot] = d.left.Union(layout.Set(slot)), d
		}
	}
	busy := d.left
	m.waits.Go(func() {
		defer d.cancel(nil)
		lost.Wait(d.ctx, func(slots shard.Set, cause error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.cut = append(d.cut, slots); !errors.Is(cause, errCut) {
				m.t.Errorf("cut off with cause %v", cause)
			}
		}, func(slots shard.Set) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.quiet = slices.AppendSeq(d.quiet, slots.Slots())
		})
		d.mu.Lock()
		defer d.mu.Unlock()
		slices.Sort(d.quiet)
		if want := slices.Sorted(slots.Slots()); !slices.Equal(d.quiet, want) {
			m.t.Errorf("slots %v were reported of %v", d.quiet, want)
		}
		var want []shard.Set
		if !d.wantCut.IsEmpty() {
			want = append(want, d.wantCut)
		}
		if !slices.Equal(d.cut, want) {
			m.t.Errorf("slots %v were cut off, want %v of %s", d.cut, want, busy)
		}
		d.returned.Store(true)
	})
}

// check compares the leaving slots and the contexts of all work with the model.
func (m *model) check() {
	for slot, d := range m.drain {
		if got := m.slots.Holds(slot); got != m.held.Holds(slot) {
			m.t.Fatalf("slot %d is held: %t", slot, got)
		}
		if d != nil {
			d.mu.Lock()
			if slices.Contains(d.quiet, slot) || d.returned.Load() {
				m.t.Fatalf("slot %d was reported with %d pieces of work", slot, len(m.work[slot]))
			}
			if n := layout.Slots - d.left.Len(); d.left.IsEmpty() || len(d.quiet) > n {
				m.t.Fatalf("slots %v were reported, %s have work", d.quiet, d.left)
			}
			d.mu.Unlock()
		}
		for _, t := range m.work[slot] {
			if t == nil {
				continue
			}
			if got := t.Stay.Err() != nil; got != (d != nil) {
				m.t.Fatalf("Stay of slot %d has ended: %t; it leaves: %t", slot, got, d != nil)
			}
			want := error(nil)
			if d != nil && d.wantCut.Holds(slot) {
				want = errCut
			}
			if got := context.Cause(t.Context); !errors.Is(got, want) {
				m.t.Fatalf("the context of slot %d has ended with %v, want %v", slot, got, want)
			}
		}
	}
}

// TestQuietOnce: many goroutines enter and leave while slots are gained and lost. When a slot is reported, it has no
// work and its contexts have ended.
func TestQuietOnce(t *testing.T) {
	t.Parallel()
	seed.Play(t, 5, func(t *testing.T, s uint64) {
		slots := handover.New(layout, errMoved, base)
		var reported [8]atomic.Bool
		for i := range reported {
			reported[i].Store(true)
		}
		var over atomic.Bool
		var workers sync.WaitGroup
		for w := range 4 {
			r := seed.Rand(s, "worker", w)
			workers.Go(func() {
				for !over.Load() {
					slot := r.IntN(layout.Slots)
					tenure, ok := slots.Enter(slot)
					if !ok {
						continue
					}
					if reported[slot].Load() || context.Cause(tenure.Context) != nil {
						t.Errorf("work on slot %d begins after it was reported", slot)
					}
					if r.IntN(2) == 0 {
						slots.Add(slot)
						slots.Leave(slot)
					}
					if r.IntN(8) == 0 {
						<-tenure.Stay.Done()
					}
					if reported[slot].Load() {
						t.Errorf("slot %d was reported during work", slot)
					}
					slots.Leave(slot)
					if reported[slot].Load() && tenure.Context.Err() == nil {
						t.Errorf("slot %d was reported before its context has ended", slot)
					}
				}
			})
		}
		r := seed.Rand(s, "slots")
		for range 300 {
			set := layout.Set(r.IntN(layout.Slots), r.IntN(layout.Slots))
			for slot := range set.Slots() {
				reported[slot].Store(false)
			}
			slots.Gain(set)
			times := map[int]int{}
			slots.Lose(set).Wait(t.Context(), nil, func(quiet shard.Set) {
				for slot := range quiet.Slots() {
					reported[slot].Store(true)
					times[slot]++
				}
			})
			for slot := range set.Slots() {
				if times[slot] != 1 {
					t.Errorf("slot %d was reported %d times", slot, times[slot])
				}
			}
			if len(times) != set.Len() {
				t.Errorf("slots %v were reported of %s", times, set)
			}
		}
		over.Store(true)
		for i := range reported {
			reported[i].Store(false) // a worker that has not seen over may enter once more
		}
		slots.Gain(layout.All())
		slots.Lose(layout.All()).Wait(t.Context(), nil, func(shard.Set) {})
		workers.Wait()
	})
}

// TestNil: without sharding all work is admitted, and nothing is counted.
func TestNil(t *testing.T) {
	t.Parallel()
	var s *handover.Slots
	if tenure, ok := s.Enter(s.SlotOf("ns", "uid")); !ok || tenure != nil || !s.Holds(0) {
		t.Errorf("Enter returned %v, %t", tenure, ok)
	}
	s.Add(0)
	s.Leave(0)
	s.Leave(0)
}

// TestNewerBoundaries: the slot of an object is the one that was gained with it, by the newest boundaries.
func TestNewerBoundaries(t *testing.T) {
	t.Parallel()
	byNamespace := shard.Layout{Slots: 2}
	moved, err := byNamespace.WithStarts(3, []uint64{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	name := "low"
	for byNamespace.SlotOf(name, "") != 0 { // and 1 by the newer boundaries
		name += "x"
	}
	slots := handover.New(byNamespace, errMoved, base)
	expect := func(reason string, slot int, held bool) {
		t.Helper()
		if got, is := slots.Find(name, ""); got != slot || is != held {
			t.Errorf("%s: it is in slot %d, held %t", reason, got, is)
		}
		got, tenure, is := slots.EnterFor(name, "")
		if is != held || is && (got != slot || tenure.Context == nil) {
			t.Errorf("%s: work on it begins: %t, in slot %d", reason, is, got)
		}
		if is {
			slots.Leave(got)
		}
	}
	lose := func(set shard.Set) {
		t.Helper()
		slots.Lose(set).Wait(t.Context(), nil, func(shard.Set) {})
	}
	expect("before", 0, false)
	slots.Gain(byNamespace.Set(0))
	expect("gained", 0, true)
	lose(byNamespace.Set(0))
	slots.Gain(moved.Set(0))
	expect("the slot has come back without it", 1, false)
	slots.Gain(moved.Set(1))
	expect("its slot has come", 1, true)
	if slots.Layout() != moved {
		t.Error("the boundaries are former ones")
	}
	lose(moved.All())
	slots.Gain(byNamespace.Set(0))
	expect("the group was made again", 0, true)
}
