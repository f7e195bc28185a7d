package e2e_test

import (
	"testing"
	"time"
)

// TestMoveWaitsForCalls has replicas join while calls are in progress that take longer than the drain bound. A planned
// move waits for them: no call is cut off, and each is made once.
func TestMoveWaitsForCalls(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Minute)
	f.setDelay(3 * time.Second)
	flags := []string{"--shards", "--drain", "300ms"}
	f.start(2, flags...)
	f.shared(2)
	for members := 3; members <= 5; members++ {
		f.pass(3 * time.Second) // so that calls are in progress everywhere
		f.start(1, flags...)
		f.shared(members)
	}
	f.end()
	f.modes.mu.Lock()
	defer f.modes.mu.Unlock()
	if len(f.cut) > 0 {
		t.Errorf("%d calls were cut off: %q", len(f.cut), f.cut)
	}
}
