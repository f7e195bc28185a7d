package schedule

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
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

// apart is the time between two frames of a watch that was held. Frames that arrive at once would be taken in an order
// that depends on the goroutines of the subject.
const apart = time.Millisecond

// lateBody is the body of a watch. What it has read waits until the gate of its kind is open. From then on its frames
// arrive one after the other. Only one goroutine may use it.
type lateBody struct {
	body   io.ReadCloser
	ended  <-chan struct{} // the request
	gates  *gates
	kind   string
	opened time.Time
	of     *Process
	split  splitter

	buffer []byte
	left   []byte // of buffer, not returned yet
	err    error  // follows left
	held   bool   // it has waited for a gate, or for the end of a pause
	within bool   // the last Read has returned the beginning of a frame
}

func newLateBody(resp *http.Response, ended <-chan struct{}, g *gates, kind string, opened time.Time, of *Process,
) *lateBody {
	return &lateBody{
		body: resp.Body, ended: ended, gates: g, kind: kind, opened: opened, of: of,
		split: splitter{prefixed: strings.Contains(resp.Header.Get("Content-Type"), "protobuf")},
	}
}

func (b *lateBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 && b.err == nil {
		if b.buffer == nil {
			b.buffer = make([]byte, 32<<10)
		}
		var n int
		n, b.err = b.body.Read(b.buffer)
		b.left = b.buffer[:n]
	}
	if err := b.wait(); err != nil {
		return 0, err
	}
	if len(b.left) == 0 {
		return 0, b.err
	}
	n, complete := b.split.frame(b.left[:min(len(b.left), len(p))])
	copy(p, b.left[:n])
	b.left, b.within = b.left[n:], !complete
	return n, nil
}

// wait waits until the gate is open, and for the turn of the next frame.
func (b *lateBody) wait() error {
	if b.held && !b.within && sleep(b.ended, apart) != nil {
		return context.Canceled
	}
	for {
		d, expired := b.gates.late(b.kind, b.opened)
		switch {
		case d > 0:
			if b.held = true; sleep(b.ended, d) != nil {
				return context.Canceled
			}
		case expired:
			b.of.expire(b.kind)
			return io.EOF
		default:
			begin := time.Now()
			if b.of.resumed(b.ended) != nil {
				return context.Canceled
			}
			b.held = b.held || time.Since(begin) >= apart
			return nil
		}
	}
}

func (b *lateBody) Close() error { return b.body.Close() }

// splitter finds the ends of frames in a stream: lines, or messages that are prefixed with their length in four bytes.
type splitter struct {
	prefixed bool

	head int    // bytes of the prefix that have been seen
	size uint32 // the prefix so far, and then the bytes of the message that are left
}

// frame returns how many of the next bytes of the stream belong to the present frame, and whether it is complete.
func (s *splitter) frame(b []byte) (n int, complete bool) {
	if !s.prefixed {
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return i + 1, true
		}
		return len(b), false
	}
	for ; s.head < 4 && n < len(b); n++ {
		s.size = s.size<<8 | uint32(b[n])
		s.head++
	}
	if s.head < 4 {
		return n, false
	}
	rest := min(int(s.size), len(b)-n)
	n, s.size = n+rest, s.size-uint32(rest)
	if s.size > 0 {
		return n, false
	}
	s.head = 0
	return n, true
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
