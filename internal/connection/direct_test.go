package connection

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// pairOf returns both ends of a TCP connection, of which a dialer under test has made the first.
func pairOf(t *testing.T, dial dialer) (client net.Conn, server *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = dial(t.Context(), "tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return client, accepted.(*net.TCPConn)
}

// dialers are the connections under test, and those whose behaviour they must have.
var dialers = map[string]dialer{
	"direct": dialDirect(&net.Dialer{}), "ordinary": (&net.Dialer{}).DialContext,
}

func TestReadAll(t *testing.T) {
	t.Parallel()
	for name, dial := range dialers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := pairOf(t, dial)
			sent := make([]byte, 4<<20)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			go func() {
				_, _ = server.Write(sent)
				_ = server.CloseWrite()
			}()
			got, err := io.ReadAll(client)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("read %d of %d bytes, or others: %v", len(got), len(sent), err)
			}
			if n, err := client.Read(nil); n != 0 || err != nil {
				t.Errorf("a read into nothing returns %d, %v", n, err)
			}
		})
	}
}

// TestReadErrors: the errors are those of an ordinary connection.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	for name, dial := range dialers {
		for _, tt := range []struct {
			reason string
			cause  func(client net.Conn, server *net.TCPConn) error
			is     error
			text   string // after the addresses
		}{
			{"the peer resets", func(_ net.Conn, server *net.TCPConn) error {
				return errors.Join(server.SetLinger(0), server.Close())
			}, nil, "read: connection reset by peer"},
			{
				"it was closed", func(client net.Conn, _ *net.TCPConn) error { return client.Close() },
				net.ErrClosed, "use of closed network connection",
			},
			{"the deadline has passed", func(client net.Conn, _ *net.TCPConn) error {
				return client.SetReadDeadline(time.Now().Add(-time.Second))
			}, os.ErrDeadlineExceeded, "i/o timeout"},
		} {
			t.Run(name+": "+tt.reason, func(t *testing.T) {
				t.Parallel()
				client, server := pairOf(t, dial)
				if err := tt.cause(client, server); err != nil {
					t.Fatal(err)
				}
				_, err := client.Read(make([]byte, 8))
				want := "read tcp " + client.LocalAddr().String() + "->" + client.RemoteAddr().String() + ": " + tt.text
				if err == nil || err.Error() != want || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("error %v, want %s", err, want)
				}
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() != (tt.is == os.ErrDeadlineExceeded) {
					t.Errorf("error %v, timeout %v", err, timeout.Timeout())
				}
			})
		}
	}
}

// TestReadEndsWithClose: a read that waits ends when the connection is closed.
func TestReadEndsWithClose(t *testing.T) {
	t.Parallel()
	client, server := pairOf(t, dialDirect(&net.Dialer{}))
	ended := make(chan error)
	got := make([]byte, 8)
	go func() {
		if _, err := client.Read(got); err != nil {
			ended <- err
			return
		}
		ended <- nil
		_, err := client.Read(got)
		ended <- err
	}()
	if _, err := server.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || got[0] != 'a' {
		t.Fatalf("read %q, %v", got[0], err)
	}
	client.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v, want %v", err, net.ErrClosed)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	client, server := pairOf(t, dialDirect(&net.Dialer{}))
	b := make([]byte, 1)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = server.Write(b)
		_, _ = client.Read(b)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := dialDirect(&net.Dialer{})(ctx, "tcp", "127.0.0.1:1"); err == nil || c != nil {
		t.Errorf("got %v, %v", c, err)
	}
}
