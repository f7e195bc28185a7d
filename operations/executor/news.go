package executor

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// news is a flag that wakes a run. It is a flow.Wait for one fiber.
type news struct {
	mu      sync.Mutex
	set     bool
	waiting bool
	waker   flow.Waker
}

// Set sets the flag, and wakes the run now or as soon as it parks.
func (n *news) Set() {
	n.mu.Lock()
	n.set = true
	waker, waiting := n.waker, n.waiting
	n.mu.Unlock()
	if waiting {
		waker.Wake()
	}
}

// take reports whether the flag was set, and clears it.
func (n *news) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.set
	n.set = false
	return was
}

// Watch implements flow.Wait.
func (n *news) Watch(w flow.Waker) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waker, n.waiting = w, true
	return n.unwatch
}

func (n *news) unwatch() {
	n.mu.Lock()
	n.waker, n.waiting = flow.Waker{}, false
	n.mu.Unlock()
}

// Check implements flow.Wait.
func (n *news) Check(context.Context, bool) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set, nil
}

// Backstop implements flow.Backstopped. It returns 0, since a flag in memory misses no event.
func (n *news) Backstop() time.Duration { return 0 }
