package executor

import (
	"context"
	"sync"
)

// crew runs work in goroutines of its own, one for each namespace that has some: the owner adds the work of a namespace
// when there begins to be some, and the work returns when there is none left. Work that is added before run waits for
// it. Its lock is a leaf.
type crew struct {
	some chan struct{} // holds a token while begin may have some

	mu    sync.Mutex
	begin []func(context.Context)
}

func newCrew() *crew { return &crew{some: make(chan struct{}, 1)} }

// add has work begun.
func (c *crew) add(work func(context.Context)) {
	c.mu.Lock()
	c.begin = append(c.begin, work)
	c.mu.Unlock()
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// run works until the context ends, and waits for what it has begun.
func (c *crew) run(ctx context.Context) {
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
