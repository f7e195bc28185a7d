package share

import (
	"context"
	"sync"
)

// Crew runs work in goroutines, one for each namespace with work. The owner adds the work of a namespace when the first
// item arrives, and the work returns when no items are left. Work that is added before Run waits for it. No other lock
// is taken under its lock.
type Crew struct {
	some chan struct{} // holds a token while begin may contain work

	mu    sync.Mutex
	begin []func(context.Context)
}

// NewCrew returns a Crew without work.
func NewCrew() *Crew { return &Crew{some: make(chan struct{}, 1)} }

// Add starts work in a goroutine of Run.
func (c *Crew) Add(work func(context.Context)) {
	c.mu.Lock()
	c.begin = append(c.begin, work)
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// Run runs the work until the context ends, and waits for the started goroutines.
func (c *Crew) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-c.some:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		begin := c.begin
		c.begin = nil
		c.mu.Unlock()
		for _, work := range begin {
			working.Go(func() { work(ctx) })
		}
	}
}
