package flow

import (
	"math"
	"sync"
	"time"
)

// never is the end of the engine's time.
const never = math.MaxInt64

// plus is a time so much later, which does not run over; one that would be before the engine's time is its beginning, since 0
// stands for none.
func plus(t int64, d time.Duration) int64 {
	if d > 0 && t > never-int64(d) {
		return never
	}
	return max(1, t+int64(d))
}

// timers is a heap of the times at which parked fibers are due, each fiber in it at most once, and one alarm for the first of
// them. Guarded by Engine.mu.
type timers struct {
	heap    []timer
	alarmAt int64
	unset   func() bool // nil while no alarm is set
	alarm   uint64      // number of the alarm that is set
}

type timer struct {
	at int64
	f  *fiber
}

// set makes f due at a time, replacing an earlier setting.
func (t *timers) set(f *fiber, at int64) {
	if f.heapAt < 0 {
		f.heapAt = int32(len(t.heap))
		t.heap = append(t.heap, timer{at, f})
		t.up(int(f.heapAt))
		return
	}
	i := int(f.heapAt)
	t.heap[i].at = at
	t.down(t.up(i))
}

func (t *timers) remove(f *fiber) {
	i := int(f.heapAt)
	if i < 0 {
		return
	}
	f.heapAt = -1
	last := len(t.heap) - 1
	moved := t.heap[last]
	t.heap[last] = timer{}
	t.heap = t.heap[:last]
	if i < last {
		t.heap[i] = moved
		t.down(t.up(i))
	}
	if cap(t.heap) > 1024 && len(t.heap) < cap(t.heap)/4 {
		t.heap = append(make([]timer, 0, cap(t.heap)/2), t.heap...)
	}
}

// The heap is four-ary: half as deep as a binary one, and children share a cache line.
func (t *timers) up(i int) int {
	x := t.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if t.heap[parent].at <= x.at {
			break
		}
		t.heap[i] = t.heap[parent]
		t.heap[i].f.heapAt = int32(i)
		i = parent
	}
	t.heap[i] = x
	x.f.heapAt = int32(i)
	return i
}

func (t *timers) down(i int) {
	x := t.heap[i]
	for {
		least := 4*i + 1
		if least >= len(t.heap) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(t.heap)); c++ {
			if t.heap[c].at < t.heap[least].at {
				least = c
			}
		}
		if t.heap[least].at >= x.at {
			break
		}
		t.heap[i] = t.heap[least]
		t.heap[i].f.heapAt = int32(i)
		i = least
	}
	t.heap[i] = x
	x.f.heapAt = int32(i)
}

// stop unsets the alarm.
func (t *timers) stop(wg *sync.WaitGroup) {
	if t.unset != nil && t.unset() {
		wg.Done()
	}
	t.unset = nil
}

// setTimer makes f due at a time. Under mu.
func (e *Engine) setTimer(f *fiber, at int64) {
	t := &e.timers
	t.set(f, at)
	e.arm()
}

// arm sets the alarm to the first timer. Under mu.
func (e *Engine) arm() {
	t := &e.timers
	if len(t.heap) == 0 || (t.unset != nil && t.alarmAt <= t.heap[0].at) {
		return
	}
	if t.unset == nil || !t.unset() {
		e.wg.Add(1) // for the new alarm; one that is being fired counts for itself
	}
	t.alarm++
	t.alarmAt = t.heap[0].at
	n := t.alarm
	t.unset = e.clock.AfterFunc(time.Duration(t.alarmAt-e.now()), func() { e.fire(n) })
}

// fire looks at all fibers that are due. It runs in the goroutine of the alarm.
func (e *Engine) fire(alarm uint64) {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timers.alarm == alarm {
		e.timers.unset = nil
	}
	for now := e.now(); len(e.timers.heap) > 0 && e.timers.heap[0].at <= now; {
		f := e.timers.heap[0].f
		e.timers.remove(f)
		switch {
		case f.state == Parked && f.why == whyGate:
			e.overdue(f, now)
		case f.state == Parked:
			e.pokeLocked(f, pokeTimer)
		case f.state == Running: // the deadline of its step; under mu, so that it cannot hit the following one
			f.mu.Lock()
			stop := f.cancel
			f.mu.Unlock()
			if stop != nil {
				stop(ErrTimeout)
			}
		}
	}
	e.arm()
}
