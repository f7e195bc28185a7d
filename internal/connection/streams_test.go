package connection

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestStreamsHaveTheirOwnConnection: with HTTP/2, lists and watches share one connection, and all other requests share
// another one.
func TestStreamsHaveTheirOwnConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	conn, err := New(insecure(server), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	from := func(send func(*Generation, *http.Request) (*http.Response, error)) string {
		t.Helper()
		g, err := conn.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer g.Release()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := send(g, req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		addr, err := io.ReadAll(resp.Body)
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("HTTP/%d, %v", resp.ProtoMajor, err)
		}
		return string(addr)
	}
	calls, streams := from((*Generation).Do), from((*Generation).Stream)
	if calls == streams {
		t.Errorf("a watch shares the connection %s with other requests", calls)
	}
	for range 3 {
		if addr := from((*Generation).Do); addr != calls {
			t.Errorf("a request has the connection %s, those before %s", addr, calls)
		}
		if addr := from((*Generation).Stream); addr != streams {
			t.Errorf("a watch has the connection %s, those before %s", addr, streams)
		}
	}
}
