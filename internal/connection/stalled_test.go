package connection

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// pipes is a network in memory. The server's ends can stop reading.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
	deaf     atomic.Bool
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- deafConn{server, p}:
		return client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It also unblocks the reads of deaf ends.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

type deafConn struct {
	net.Conn
	of *pipes
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.of.deaf.Load() {
		<-c.of.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// TestPeerThatStopsReading checks that a connection closes if its peer sends but does not read. Otherwise one blocked
// write would block all requests of the connection.
func TestPeerThatStopsReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.URL.Path == "/watch" && r.Context().Err() == nil {
				_, _ = fmt.Fprintln(w, "an event")
				w.(http.Flusher).Flush()
				select {
				case <-time.After(5 * time.Second):
				case <-r.Context().Done():
				}
			}
		}))
		server.Listener, server.EnableHTTP2 = network, true
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		defer network.Close()
		c, err := New(&rest.Config{
			Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Dial: network.dial,
			Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send := func(method, path string, body io.Reader) (*http.Response, error) {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
			if err != nil {
				t.Fatal(err)
			}
			return c.RoundTrip(r)
		}
		watch, err := send(http.MethodGet, "/watch", nil)
		if err != nil || watch.ProtoMajor != 2 {
			t.Fatalf("the watch: %v, %v", watch, err)
		}
		defer watch.Body.Close()
		time.Sleep(time.Minute)

		network.deaf.Store(true)
		var ended atomic.Int32
		var all sync.WaitGroup
		all.Go(func() {
			if res, err := send(http.MethodPost, "/", bytes.NewReader(make([]byte, 1<<16))); err == nil {
				res.Body.Close()
				t.Error("a request got a response without being read")
			}
			ended.Add(1)
		})
		all.Go(func() {
			if _, err := io.Copy(io.Discard, watch.Body); err == nil {
				t.Error("the watch ended without an error")
			}
			ended.Add(1)
		})
		time.Sleep(30 * time.Second) // the timeout, and up to 10 s to close the TLS connection
		if n := ended.Load(); n != 2 {
			t.Errorf("%d of 2 requests have ended", n)
		}
		network.Close()
		all.Wait()
	})
}

// TestPing checks that a connection whose peer vanished closes after Options.Ping and twice that time.
func TestPing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Listener, server.EnableHTTP2 = network, true
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		defer network.Close()
		var answers atomic.Bool
		answers.Store(true)
		ended := make(chan struct{})
		defer close(ended)
		c, err := New(&rest.Config{
			Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
				conn, err := network.dial(ctx, kind, address)
				return &silentConn{Conn: conn, answers: &answers, ended: ended, closed: make(chan struct{})}, err
			},
			Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		}, Options{Ping: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send := func() error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.RoundTrip(r)
			if err == nil {
				res.Body.Close()
			}
			return err
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		answers.Store(false)
		begun := time.Now()
		if err, took := send(), time.Since(begun); err == nil || took > 3*time.Second {
			t.Errorf("A request on the connection ended after %v with %v.", took, err)
		}
		answers.Store(true)
		if err := send(); err != nil {
			t.Errorf("the next connection: %v", err)
		}
	})
}

// silentConn receives nothing while answers is false.
type silentConn struct {
	net.Conn
	answers       *atomic.Bool
	ended, closed chan struct{}
	once          sync.Once
}

func (c *silentConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.answers.Load() {
		select {
		case <-c.ended:
		case <-c.closed:
		}
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
