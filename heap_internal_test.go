package fairlead

import (
	"runtime"
	"testing"
)

func TestHeapFloorPercent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason      string
		floor, base uint64
		live, want  uint64
	}{
		{"a heap of 80 MiB grows to 256 MiB", 256 << 20, 100, 80 << 20, 220},
		{"more than half of the floor: as before", 256 << 20, 100, 200 << 20, 100},
		{"more than the floor", 256 << 20, 100, 1 << 30, 100},
		{"what was set is more", 256 << 20, 400, 80 << 20, 400},
		{"nearly nothing is live", 256 << 20, 100, 0, 25500},
	} {
		h := &heapFloor{floor: tc.floor, base: tc.base}
		if got := h.percent(tc.live); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.reason, got, tc.want)
		}
	}
}

// After each collection it is looked again.
func TestHeapFloorFollowsTheHeap(t *testing.T) {
	end := raiseHeap(1 << 40)
	defer end()
	first := readMetric("/gc/gogc:percent")
	block := make([]byte, 256<<20) // not touched
	for readMetric("/gc/gogc:percent") > first/2 {
		runtime.GC()
		runtime.Gosched()
	}
	runtime.KeepAlive(block)
	if high := readMetric("/gc/gogc:percent"); high < 100 {
		t.Errorf("GOGC is %d", high)
	}
}
