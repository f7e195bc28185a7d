//go:build unix

package apiserver_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestDownKeepsThePort: while a server is down, connections are refused, and no other listener gets its port.
func TestDownKeepsThePort(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	addr := strings.TrimPrefix(s.URL(), "http://")
	s.Down()
	if conn, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			conn.Close()
		}
		t.Errorf("a client gets %v, want a refusal", err)
	}
	exclusive := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}); e != nil {
			return e
		}
		return err
	}}
	if l, err := exclusive.Listen(context.Background(), "tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			l.Close()
		}
		t.Errorf("another process gets %v, want that the address is in use", err)
	}
	for range 2 {
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		s.Down()
	}
}
