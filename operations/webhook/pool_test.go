package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// newPools returns transports that may call loopback.
func newPools(t *testing.T) *transports {
	t.Helper()
	g, err := guard.NewWith(guard.Options{Allow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	pools := &transports{guard: g}
	t.Cleanup(pools.close)
	return pools
}

// TestPoolsByNamespace: a namespace with thousands of pools evicts none of another namespace, and their total is
// bounded.
func TestPoolsByNamespace(t *testing.T) {
	t.Parallel()
	pools := newPools(t)
	get := func(namespace string, i int, config *tls.Config) http.RoundTripper {
		rt, release := pools.get(namespace, tlsMaterial{serverName: fmt.Sprint(i)}.fingerprint(), config, 1<<20)
		if rt != nil {
			release()
		}
		return rt
	}
	first := get("victim", 0, &tls.Config{})
	for i := range 1000 {
		get("hostile", i, &tls.Config{})
	}
	if get("victim", 0, nil) != first {
		t.Error("the pool of another namespace is gone")
	}
	if get("other", 0, &tls.Config{}) == first {
		t.Error("namespaces share connections")
	}
	if weight := pools.recent.Weight(); weight > maxPools || pools.recent.Line("hostile").Len() < 32 {
		t.Errorf("%d bytes of %d", weight, maxPools)
	}
	if get("hostile", 999, nil) == nil || get("hostile", 0, nil) != nil {
		t.Error("the least recently used pool goes first")
	}
	pools.close()
	if len(pools.pools)+pools.recent.Len()+pools.recent.Weight() != 0 {
		t.Errorf("left over: %+v", pools.pools)
	}
}

// TestConnectionsByNamespace: a namespace may have as many connections as it leaves to others. It closes its idle ones
// first. Connections count until they are closed.
func TestConnectionsByNamespace(t *testing.T) {
	t.Parallel()
	pools := newPools(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	address := server.Listener.Addr().String()
	dials := 0
	dial := func(namespace string) (net.Conn, error) {
		return pools.dialer(namespace, func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials%3 == 0 {
				return nil, errors.New("not now")
			}
			return &net.TCPConn{}, nil
		})(t.Context(), "tcp", address)
	}
	var open []net.Conn
	for {
		conn, err := dial("hostile")
		if errors.Is(err, errConnections) {
			break
		}
		if err == nil {
			open = append(open, conn)
		}
	}
	if len(open) != maxConnections/2 {
		t.Errorf("one namespace has %d connections, of %d", len(open), maxConnections)
	}
	for dials = 0; dials < 2; {
		if _, err := dial("victim"); err != nil {
			t.Errorf("another namespace: %v", err)
		}
	}
	for _, conn := range open {
		_ = conn.Close()
		_ = conn.Close()
	}
	if hostile, all := pools.connections.Of("hostile"), pools.connections.All(); hostile != 0 || all != 2 {
		t.Errorf("%d of %d are counted", hostile, all)
	}

	// Idle connections make room.
	rt, release := pools.get("idle", [32]byte{}, &tls.Config{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	release()
	if n := pools.connections.Of("idle"); n != 1 {
		t.Fatalf("%d connections after a request", n)
	}
	pools.mu.Lock()
	pools.connections.Add("other", maxConnections-1-pools.connections.All()) // others hold them
	pools.mu.Unlock()
	conn, err := pools.dialer("idle", pools.guard.DialContext)(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("with an idle connection to give up: %v", err)
	}
	_ = conn.Close()
}
