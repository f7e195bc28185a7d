//go:build unix

package apiserver

import (
	"fmt"
	"net"
	"syscall"
)

// port is a TCP port of the loopback interface that no other process gets while the server is down. A socket is bound
// to it that does not listen, so clients are refused and a listener can use the same address.
type port struct {
	addr string
	fd   int
}

func reservePort() (p *port, err error) {
	syscall.ForkLock.RLock() // no child process inherits the socket
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(fd)
		}
	}()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return nil, fmt.Errorf("the socket has an address of type %T", name)
	}
	return &port{net.JoinHostPort("127.0.0.1", fmt.Sprint(bound.Port)), fd}, nil
}

func (p *port) release() { _ = syscall.Close(p.fd) }

// closeListener closes a listener, so that another one can use its address. A child process has a copy of the socket
// until it runs its program. After the shutdown the copy does not listen either.
func closeListener(l net.Listener) {
	if tcp, ok := l.(*net.TCPListener); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		}
	}
	_ = l.Close()
}
