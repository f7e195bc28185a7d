//go:build linux && !race && !msan && !asan

package connection

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// dialDirect returns the dial function of a dialer, whose connections read without telling the Go scheduler about the
// system call. A socket is non-blocking, so the call never waits. A process that waits for events is idle, and each
// ordinary system call then wakes the monitor of the scheduler (sysmon), which polls every 20 µs for a while: a sixth
// of the processor time of an event at 2,000 a second.
//
// The race detector needs ordinary reads: they tell it that the write of a peer in the same process came before.
func dialDirect(d *net.Dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			if raw, err := tcp.SyscallConn(); err == nil {
				direct := &directConn{Conn: c, raw: raw}
				direct.try = direct.tryRead
				return direct, nil
			}
		}
		return c, err
	}
}

// directConn is a connection of dialDirect.
type directConn struct {
	net.Conn
	raw syscall.RawConn
	try func(fd uintptr) bool // tryRead, made once so that a read allocates nothing

	mu    sync.Mutex // guards the read that runs
	into  []byte
	n     int
	errno syscall.Errno
}

// Read implements net.Conn.
func (d *directConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return d.Conn.Read(b)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.into = b
	err := d.raw.Read(d.try)
	d.into = nil
	switch {
	case err != nil:
		return 0, d.failed(err)
	case d.errno != 0:
		return 0, d.failed(os.NewSyscallError("read", d.errno))
	case d.n == 0:
		return 0, io.EOF
	}
	return d.n, nil
}

// tryRead reads what has arrived. It returns false if there is nothing.
func (d *directConn) tryRead(fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&d.into[0])), uintptr(len(d.into)))
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		d.n, d.errno = int(n), errno
		return true
	}
}

// failed returns the error that an ordinary read returns.
func (d *directConn) failed(err error) error {
	if op, ok := err.(*net.OpError); ok {
		err = op.Err
	}
	return &net.OpError{
		Op: "read", Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(), Err: err,
	}
}
