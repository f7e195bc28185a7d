package store

import (
	"sync"
	"testing"
	"testing/synctest"
)

// running is a set of drains that a test ends one by one.
type running struct {
	g     drainGoroutines
	mu    sync.Mutex
	count int
	end   chan struct{}
}

// start runs n drains, each of which lasts until the test ends one.
func (r *running) start(n int) {
	for range n {
		r.g.run(func() {
			r.mu.Lock()
			r.count++
			r.mu.Unlock()
			<-r.end
		})
	}
	synctest.Wait()
}

// finish ends n drains.
func (r *running) finish(n int) {
	for range n {
		r.end <- struct{}{}
	}
	synctest.Wait()
}

func (r *running) waiting() int {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return len(r.g.waiting)
}

// TestDrainGoroutinesWait: goroutines wait for the next drain while there are drainers, and not more than maxWaiting. In
// a bubble, a goroutine that does not end fails the test.
func TestDrainGoroutinesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &running{end: make(chan struct{})}
		expect := func(reason string, waiting, started int) {
			t.Helper()
			if got := r.waiting(); got != waiting || r.count != started {
				t.Errorf("%s: %d goroutines wait, want %d; %d drains have begun, want %d", reason, got, waiting, r.count, started)
			}
		}
		r.g.add()
		r.g.add()
		r.start(maxWaiting + 1)
		expect("all run at the same time", 0, maxWaiting+1)
		r.finish(maxWaiting + 1)
		expect("all have ended", maxWaiting, maxWaiting+1)
		r.start(1)
		expect("one runs on a goroutine that waited", maxWaiting-1, maxWaiting+2)
		r.g.remove()
		r.finish(1)
		expect("a drainer is left", maxWaiting, maxWaiting+2)
		r.g.remove()
		synctest.Wait()
		expect("no drainer is left", 0, maxWaiting+2)
		r.start(1)
		r.finish(1)
		expect("a drain that ends after the last drainer was closed", 0, maxWaiting+3)
	})
}

func TestDrainGoroutinesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &running{end: make(chan struct{})}
		r.g.add()
		r.start(2)
		r.finish(1)
		r.g.close()
		r.finish(1)
		if n := r.waiting(); n != 0 {
			t.Errorf("%d goroutines wait in a store that is closed", n)
		}
		r.g.remove()
	})
}
