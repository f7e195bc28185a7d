package source_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/source"
)

// TestSourcesShareAConnection: all sources of a client share one HTTP/2 connection, which Close closes.
func TestSourcesShareAConnection(t *testing.T) {
	t.Parallel()
	s := &script{t: t, lists: []reply{list(5, object("a", 1))}, watches: []reply{watch(bookmark(9))}}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	var mu sync.Mutex
	opened, open := 0, 0
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			opened++
			open++
		case http.StateClosed:
			open--
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	conn, err := connection.New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		connection.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 20 {
		r := newRecorder(t)
		src, err := source.New(source.Config{Connection: conn, Resource: configMaps, NoWatchList: true}, r.sink)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := src.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		r.wait("the bookmark", func() bool { return r.version == "9" })
	}
	cancel()
	running.Wait()
	conn.Close()
	eventually(t, "the connection to close", func() bool { mu.Lock(); defer mu.Unlock(); return open == 0 })
	if opened != 1 {
		t.Errorf("%d connections, want 1", opened)
	}
}

// hole is a network that can silently drop all traffic, as a firewall that lost its state does.
type hole struct {
	mu    sync.Mutex
	conns []*holedConn
}

type holedConn struct {
	net.Conn
	mu     sync.Mutex
	dead   bool
	closed chan struct{}
	once   sync.Once
}

func (h *hole) wrap(
	dial func(context.Context, string, string) (net.Conn, error),
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		holed := &holedConn{Conn: c, closed: make(chan struct{})}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.conns = append(h.conns, holed)
		return holed, nil
	}
}

// swallow kills the open connections.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.mu.Lock()
		c.dead = true
		c.mu.Unlock()
	}
}

func (c *holedConn) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *holedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.isDead() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *holedConn) Write(b []byte) (int, error) {
	if c.isDead() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *holedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestDeadConnection: a connection that drops everything is detected, by ping on HTTP/2 and by the silence budget on
// HTTP/1.1. The missed changes arrive over a new connection.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options apiserver.Options
		within  time.Duration
	}{
		"HTTP/2":   {apiserver.Options{Pipe: true, HTTP2: true}, 50 * time.Second},
		"HTTP/1.1": {apiserver.Options{Pipe: true}, 130 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, err := apiserver.New(c.options)
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				cfg := server.Config()
				var network hole
				cfg.Dial = network.wrap(server.Dial)
				r := newRecorder(t)
				src, err := source.New(source.Config{REST: cfg, Resource: configMaps}, r.sink)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- src.Run(ctx) }()
				time.Sleep(10 * time.Second)
				network.swallow()
				cm := &corev1.ConfigMap{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late"},
				}
				if _, err := server.Put(cm); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.within)
				synctest.Wait()
				same(t, server, r)
				if n := r.commits; n != 1 {
					t.Errorf("%d lists, want 1: the watch can resume", n)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				server.DropConnections()
			})
		})
	}
}
