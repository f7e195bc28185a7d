package flow

import "sync"

// timers is a heap of the times at which fibers are due, with at most one entry per fiber, and one alarm for the first
// entry. Guarded by Engine.mu.
type timers struct {
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

// stop unsets the alarm.
func (t *timers) stop(wg *sync.WaitGroup) {
	if t.unset != nil && t.unset() {
		wg.Done()
	}
	t.unset = nil
}
