package schedule

import (
	"context"
	"io"
	"sync"
	"time"
)

// gates hold back what watches receive, by kind. They are safe for concurrent use.
type gates struct {
	mu     sync.Mutex
	closed map[string]closing // by resource and group
}

// closing is a time during which watches of a kind are held.
type closing struct{ from, until time.Time }

func newGates() *gates { return &gates{closed: map[string]closing{}} }

// close holds the present watches of a kind for d.
func (g *gates) close(kind string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.closed[kind] = closing{now, now.Add(d)}
}

// late returns how long a watch has to wait now. A watch that is opened after the gate was closed sees the present
// state.
func (g *gates) late(kind string, opened time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.closed[kind]
	if !ok || opened.After(c.from) {
		return 0
	}
	return time.Until(c.until)
}

// lateBody is the body of a watch. What it has read waits until the gate of its kind is open.
type lateBody struct {
	io.ReadCloser
	ended  <-chan struct{} // the request
	gates  *gates
	kind   string
	opened time.Time
	of     *Process
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for {
		d := b.gates.late(b.kind, b.opened)
		if d <= 0 {
			if b.of.resumed(b.ended) != nil {
				return 0, context.Canceled
			}
			return n, err
		}
		if sleep(b.ended, d) != nil {
			return 0, context.Canceled
		}
	}
}

// sleep waits for d on the clock of the bubble, or until done is closed.
func sleep(done <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-done:
		return context.Canceled
	}
}
