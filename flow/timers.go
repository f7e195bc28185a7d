package flow

import (
	"sync"
	"time"
)

// timers makes fibers due at a time, with at most one time for each fiber. It has a heap of these times, and one alarm
// for the first of them. Its entry in a fiber is heapAt, the index in the heap.
//
// The owner holds mu during each call. The alarm takes mu itself, and holds it while it calls due.
type timers struct {
	mu   *sync.Mutex
	time *timeline
	wg   *sync.WaitGroup           // counts the alarm
	due  func(f *fiber, now int64) // called when the time of f has come

	heap    []timer
	alarmAt int64
	unset   func() bool // nil if no alarm is set
	alarm   uint64      // number of the current alarm
}

type timer struct {
	at int64
	f  *fiber
}

// set makes f due at a time, which replaces an earlier one.
func (t *timers) set(f *fiber, at int64) {
	if f.heapAt < 0 {
		f.heapAt = int32(len(t.heap))
		t.heap = append(t.heap, timer{at, f})
		t.up(int(f.heapAt))
	} else {
		i := int(f.heapAt)
		t.heap[i].at = at
		t.down(t.up(i))
	}
	t.arm()
}

// of returns when f is due, 0 if it has no time.
func (t *timers) of(f *fiber) int64 {
	if f.heapAt < 0 {
		return 0
	}
	return t.heap[f.heapAt].at
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

// The heap is four-ary: it is half as deep as a binary heap, and siblings share a cache line.
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

// arm sets the alarm to the first time.
func (t *timers) arm() {
	if len(t.heap) == 0 || (t.unset != nil && t.alarmAt <= t.heap[0].at) {
		return
	}
	if t.unset == nil || !t.unset() {
		t.wg.Add(1) // for the new alarm; an alarm that is firing keeps its own count
	}
	t.alarm++
	t.alarmAt = t.heap[0].at
	n := t.alarm
	t.unset = t.time.clock.AfterFunc(time.Duration(t.alarmAt-t.time.now()), func() { t.fire(n) })
}

// fire calls due for all fibers whose time has come. It runs in the goroutine of the alarm.
func (t *timers) fire(alarm uint64) {
	defer t.wg.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alarm == alarm {
		t.unset = nil
	}
	for now := t.time.now(); len(t.heap) > 0 && t.heap[0].at <= now; {
		f := t.heap[0].f
		t.remove(f)
		t.due(f, now)
	}
	t.arm()
}

// stop unsets the alarm.
func (t *timers) stop() {
	if t.unset != nil && t.unset() {
		t.wg.Done()
	}
	t.unset = nil
}
