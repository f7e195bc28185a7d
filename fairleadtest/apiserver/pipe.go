package apiserver

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// errRefused is the error of Dial while the server is down.
var errRefused = fmt.Errorf("cannot dial the server: %w", syscall.ECONNREFUSED)

// pipeListener accepts in-memory connections. It blocks only on channels, as testing/synctest requires.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := newPipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// entrance connects clients to the present listener. It does not refer to the Server: client-go keeps the function Dial
// of each configuration in a global map until the client's transport is collected. If the function led to the Server,
// and the Server by OnChange to its clients, that would never be.
type entrance struct {
	listener atomic.Pointer[pipeListener] // nil: the server is down
}

func (e *entrance) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if l := e.listener.Load(); l != nil {
		return l.dial(ctx)
	}
	return nil, errRefused
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
