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

func (r *running) waits() bool {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.g.waiting != nil
}

// TestDrainGoroutinesWait checks that one goroutine waits for the next drain while there are drainers. In a bubble, a
// goroutine that does not end fails the test.
func TestDrainGoroutinesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &running{end: make(chan struct{})}
		expect := func(reason string, waits bool, begun int) {
			t.Helper()
			if r.waits() != waits || r.count != begun {
				t.Errorf("%s: a goroutine waits: %v, want %v; %d drains have begun, want %d", reason, r.waits(), waits,
					r.count, begun)
			}
		}
		r.g.add()
		r.g.add()
		r.start(2)
		expect("both run at the same time", false, 2)
		r.finish(2)
		expect("both have ended", true, 2)
		r.start(1)
		expect("one runs on the goroutine that waited", false, 3)
		r.g.remove()
		r.finish(1)
		expect("a drainer is left", true, 3)
		r.g.remove()
		synctest.Wait()
		expect("no drainer is left", false, 3)
		r.start(1)
		r.finish(1)
		expect("a drain that ends after the last drainer was closed", false, 4)
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
		if r.waits() {
			t.Error("a goroutine waits in a store that is closed")
		}
		r.g.remove()
	})
}
