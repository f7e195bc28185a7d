package apiserver

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBuffer is the number of bytes that one side may write before the other side reads. Unlike net.Pipe and like a
// socket, a small answer is sent whether or not the client reads.
const pipeBuffer = 256 << 10

// pipeConn is one end of an in-memory connection.
type pipeConn struct {
	in, out       *pipeHalf
	reads, writes deadline
	once          sync.Once
	closed        chan struct{}
}

// pipeHalf carries bytes in one direction.
type pipeHalf struct {
	mu      sync.Mutex
	buf     []byte
	closed  bool // by either end
	changed chan struct{}
}

func newPipe() (client, server net.Conn) {
	a, b := &pipeHalf{changed: make(chan struct{})}, &pipeHalf{changed: make(chan struct{})}
	return newPipeConn(a, b), newPipeConn(b, a)
}

func newPipeConn(in, out *pipeHalf) *pipeConn {
	c := &pipeConn{in: in, out: out, closed: make(chan struct{})}
	c.reads.expired, c.writes.expired = make(chan struct{}), make(chan struct{})
	return c
}

func (h *pipeHalf) notifyLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// take moves bytes to p, or returns the channel that is closed when the caller must retry.
func (h *pipeHalf) take(p []byte) (n int, err error, wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.buf) > 0:
		n = copy(p, h.buf)
		if h.buf = h.buf[n:]; len(h.buf) == 0 {
			h.buf = nil
		}
		h.notifyLocked()
	case h.closed:
		err = io.EOF
	default:
		wait = h.changed
	}
	return n, err, wait
}

func (h *pipeHalf) give(p []byte) (n int, err error, wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch room := pipeBuffer - len(h.buf); {
	case h.closed:
		err = io.ErrClosedPipe
	case room > 0:
		n = min(room, len(p))
		h.buf = append(h.buf, p[:n]...)
		h.notifyLocked()
	default:
		wait = h.changed
	}
	return n, err, wait
}

func (c *pipeConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if err := c.ended(&c.reads); err != nil {
			return 0, err
		}
		n, err, wait := c.in.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		c.wait(wait, &c.reads)
	}
}

func (c *pipeConn) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if err := c.ended(&c.writes); err != nil {
			return done, err
		}
		n, err, wait := c.out.give(p[done:])
		if done += n; err != nil {
			return done, err
		}
		if n == 0 {
			c.wait(wait, &c.writes)
		}
	}
	return done, nil
}

// ended returns the reason why the connection cannot be read or written.
func (c *pipeConn) ended(d *deadline) error {
	select {
	case <-c.closed:
		return io.ErrClosedPipe
	case <-d.channel():
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}

func (c *pipeConn) wait(changed <-chan struct{}, d *deadline) {
	select {
	case <-changed:
	case <-c.closed:
	case <-d.channel():
	}
}

// Close closes both directions. The other end can still read the bytes written before.
func (c *pipeConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		for _, h := range []*pipeHalf{c.in, c.out} {
			h.mu.Lock()
			h.closed = true
			h.notifyLocked()
			h.mu.Unlock()
		}
		c.reads.set(time.Time{})
		c.writes.set(time.Time{})
	})
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr  { return pipeAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr { return pipeAddr{} }

func (c *pipeConn) SetDeadline(t time.Time) error {
	c.reads.set(t)
	c.writes.set(t)
	return nil
}

func (c *pipeConn) SetReadDeadline(t time.Time) error  { c.reads.set(t); return nil }
func (c *pipeConn) SetWriteDeadline(t time.Time) error { c.writes.set(t); return nil }

// deadline closes a channel at a time that can be changed.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
}

func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.expired:
		d.expired = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	expired := d.expired
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.expired == expired {
				select {
				case <-expired:
				default:
					close(expired)
				}
			}
		})
	} else {
		close(expired)
	}
}
