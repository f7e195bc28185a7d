package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestACallerWithRightsIsNoStranger: idle connections of callers with rights stay open where those of strangers are
// closed.
func TestACallerWithRightsIsNoStranger(t *testing.T) {
	a := setup(t, nil)
	mux := http.NewServeMux()
	mux.Handle("/", a.handler)
	mux.Handle("/debug/", httpapi.Protect(http.NotFoundHandler(), httpapi.NewKubernetes(a.calls), a.namespace))
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by Run
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // at most one idle stranger is allowed
		if err := serve.New(mux, serve.Options{MaxConnections: 8, StrangerTime: time.Hour}).Run(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	type caller struct {
		net.Conn
		answers *bufio.Reader
	}
	dial := func() caller {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return caller{c, bufio.NewReader(c)}
	}
	ask := func(c caller, path, token string, want int) {
		t.Helper()
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp, err := http.ReadResponse(c.answers, nil)
		if err != nil {
			t.Fatalf("%s: the connection was closed: %v", path, err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	for _, path := range []string{"/operations", "/debug/x"} {
		want := map[string]int{"/operations": 200, "/debug/x": 404}[path]
		c := dial()
		for range 3 {
			ask(c, path, a.tokens["reader"], want)
			dial() // strangers close each other's connections
			dial()
			ask(c, path, a.tokens["reader"], want)
		}
	}
}
