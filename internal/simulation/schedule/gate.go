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
	past   map[string]past    // by resource and group
}

// closing is a time during which watches of a kind are held. Watches that expire then end, and what they held is lost.
type closing struct {
	from, until time.Time
	expire      bool
}

func newGates() *gates { return &gates{closed: map[string]closing{}, past: map[string]past{}} }

// close holds the present watches of a kind for d.
func (g *gates) close(kind string, d time.Duration, expire bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.closed[kind] = closing{now, now.Add(d), expire}
}

// past is a state that lists of a kind show, as those of an API server do whose cache is behind.
type past struct {
	version string
	d       time.Duration
	until   time.Time // zero before the first list
}

// rewind has lists show the state of a version for d, from the first list on, and watches show nothing newer meanwhile.
func (g *gates) rewind(kind, version string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past[kind] = past{version: version, d: d}
}

// pastOf returns the version that a list of a kind shows now, or "".
func (g *gates) pastOf(kind string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.past[kind]
	if !ok {
		return ""
	}
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.d)
		g.past[kind] = p
		g.closed[kind] = closing{now, p.until, false}
	}
	if now.After(p.until) {
		return ""
	}
	return p.version
}

// late returns how long a watch has to wait now, and whether it has expired after that. A watch that is opened after
// the gate was closed sees the present state.
func (g *gates) late(kind string, opened time.Time) (wait time.Duration, expired bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.closed[kind]
	if !ok || opened.After(c.from) {
		return 0, false
	}
	return time.Until(c.until), c.expire
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
		d, expired := b.gates.late(b.kind, b.opened)
		if d <= 0 && expired {
			b.of.expire(b.kind)
			return 0, io.EOF
		}
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
