package share

import (
	"context"
	"sync"
)

// Crew runs work in goroutines of its own, one for each namespace that has some: the owner adds the work of a namespace
// when there begins to be some, and the work returns when there is none left. Work that is added before Run waits for
// it. Its lock is a leaf.
type Crew struct {
	some chan struct{} // holds a token while begin may have some

	mu    sync.Mutex
	begin []func(context.Context)
}

// NewCrew returns a Crew without work.
func NewCrew() *Crew { return &Crew{some: make(chan struct{}, 1)} }

// Add has work begun.
func (c *Crew) Add(work func(context.Context)) {
	c.mu.Lock()
	c.begin = append(c.begin, work)
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// Run works until the context ends, and waits for what it has begun.
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
