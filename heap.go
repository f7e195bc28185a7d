package fairlead

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapFloor keeps the collector from collecting a small heap all the time: with GOGC alone that happens whenever it has
// doubled. After each collection it sets GOGC so that the next one comes when the heap has the size of the floor, and
// to what it was before where that comes later. GOMEMLIMIT counts as ever.
type heapFloor struct {
	floor uint64
	base  uint64 // GOGC before

	mu    sync.Mutex
	now   uint64 // GOGC
	ended bool
}

// raiseHeap begins; end sets GOGC back. Nothing is done where there is no floor or GOGC is off.
func raiseHeap(floor int64) (end func()) {
	base := readMetric("/gc/gogc:percent")
	if floor <= 0 || base > math.MaxInt32 {
		return func() {}
	}
	h := &heapFloor{floor: uint64(floor), base: base, now: base}
	h.collected()
	return h.end
}

// collected is called after each collection.
func (h *heapFloor) collected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	// What is close enough is left as it is: to set it stops the program for a moment.
	if want := h.percent(readMetric("/gc/heap/live:bytes")); want > h.now+h.now/10 || want < h.now-h.now/10 {
		h.set(want)
	}
	runtime.AddCleanup(&sentinel{h}, (*heapFloor).collected, h)
}

// sentinel is garbage at once, so that the next collection finds it.
type sentinel struct{ _ *heapFloor }

// percent returns the GOGC with which a heap of which so much is live grows up to the floor.
func (h *heapFloor) percent(live uint64) uint64 {
	live = max(live, 1<<20)
	if live >= h.floor {
		return h.base
	}
	return max(h.base, (h.floor-live)*100/live)
}

func (h *heapFloor) set(percent uint64) {
	h.now = percent
	debug.SetGCPercent(int(min(percent, math.MaxInt32)))
}

func (h *heapFloor) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.set(h.base)
}

func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return math.MaxUint64
	}
	return sample[0].Value.Uint64()
}
