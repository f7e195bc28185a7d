package flow

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// newTestTimers returns timers on a clock that stands still, and the fibers that have become due so far.
func newTestTimers() (*timers, *handClock, func() []uint64) {
	clock := &handClock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	line := newTimeline(clock)
	var due []uint64
	t := &timers{
		mu: &sync.Mutex{}, time: &line, wg: &sync.WaitGroup{},
		due: func(f *fiber, _ int64) { due = append(due, f.id) },
	}
	return t, clock, func() []uint64 {
		synctest.Wait() // for the goroutine of the alarm
		t.mu.Lock()
		defer t.mu.Unlock()
		return slices.Clone(due)
	}
}

// TestTimersAreDueInOrder compares timers with a plain map, over random changes.
func TestTimersAreDueInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tm, clock, _ := newTestTimers()
		now := tm.time.now()
		fibers := make([]*fiber, 30)
		for i := range fibers {
			fibers[i] = &fiber{id: uint64(i), heapAt: -1}
		}
		want := map[uint64]int64{}
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			f := rapid.SampledFrom(fibers).Draw(t, "fiber")
			if rapid.Bool().Draw(t, "set") {
				at := now + int64(rapid.IntRange(1, 50).Draw(t, "at"))
				tm.set(f, at)
				want[f.id] = at
			} else {
				tm.remove(f)
				delete(want, f.id)
			}
			if got := tm.of(f); got != want[f.id] {
				t.Fatalf("fiber %d is due at %d, want %d", f.id, got, want[f.id])
			}
		}
		if len(want) > 0 && len(clock.alarms) != 1 {
			t.Fatalf("%d alarms for %d times", len(clock.alarms), len(want))
		}
		var order []int64
		tm.due = func(f *fiber, _ int64) {
			order = append(order, want[f.id])
			delete(want, f.id)
		}
		clock.now = clock.now.Add(time.Minute)
		tm.wg.Add(1) // as the alarm would
		tm.fire(tm.alarm)
		if len(want) > 0 || !slices.IsSorted(order) || len(tm.heap) > 0 {
			t.Fatalf("not due: %v, order %v", want, order)
		}
	})
}

func TestTimersHaveOneAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm, clock, due := newTestTimers()
		first, second := &fiber{id: 1, heapAt: -1}, &fiber{id: 2, heapAt: -1}
		at := func(d time.Duration) int64 { return plus(tm.time.now(), d) }
		tm.mu.Lock()
		tm.set(second, at(time.Hour))
		tm.set(first, at(time.Minute)) // moves the alarm forward
		tm.mu.Unlock()
		clock.add(59 * time.Second)
		if got := due(); len(got) > 0 {
			t.Errorf("%v are due too early", got)
		}
		clock.add(time.Second)
		if got := due(); !slices.Equal(got, []uint64{1}) {
			t.Errorf("after a minute %v are due", got)
		}
		tm.mu.Lock()
		tm.remove(second)
		tm.mu.Unlock()
		clock.add(2 * time.Hour)
		if got := due(); !slices.Equal(got, []uint64{1}) {
			t.Errorf("after its removal %v are due", got)
		}
		tm.mu.Lock()
		tm.set(second, at(time.Hour))
		tm.stop()
		tm.mu.Unlock()
		tm.wg.Wait()
		if len(clock.alarms) > 0 {
			t.Error("an alarm is left after stop")
		}
	})
}
