package call_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// pipe is a listener with connections in memory, so that a server and its client share one synctest bubble.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// down makes dialling fail, as a refused connection does.
	down func() error
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if p.down != nil {
		if err := p.down(); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
	}
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipe) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// bench is a server with a script and a client for it.
type bench struct {
	pipe   *pipe
	client *call.Client

	mu       sync.Mutex
	requests []string // "METHOD path?query body"
	headers  []http.Header
	at       []time.Time
	script   []http.HandlerFunc // one for each request; the last one is repeated
}

// newBench starts a server and its client, within the bubble of a synctest. Jitter is off: every back-off is its
// ceiling.
func newBench(t *testing.T, o call.Options, script ...http.HandlerFunc) *bench {
	t.Helper()
	b := &bench{pipe: newPipe(), script: script}
	srv := &http.Server{Handler: b, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(b.pipe) })
	transport := &http.Transport{DialContext: b.pipe.dial}
	if o.Config == nil {
		o.Config = new(rest.Config)
	}
	o.Config.Host, o.Config.Transport = "http://server", transport
	if o.HTTPClient != nil {
		o.HTTPClient.Transport = transport
	}
	if o.Rand == nil {
		o.Rand = func() float64 { return 1 }
	}
	client, err := call.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.client = client
	t.Cleanup(func() {
		client.Close()
		_ = srv.Close()
		served.Wait()
	})
	return b
}

func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.requests = append(b.requests, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	b.headers = append(b.headers, r.Header.Clone())
	b.at = append(b.at, time.Now())
	h := b.script[min(len(b.requests), len(b.script))-1]
	b.mu.Unlock()
	h(w, r)
}

func (b *bench) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.requests...)
}

// waits returns the times between the requests.
func (b *bench) waits() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []time.Duration
	for i := 1; i < len(b.at); i++ {
		out = append(out, b.at[i].Sub(b.at[i-1]))
	}
	return out
}

// answer replies with JSON.
func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// status replies with a Status, as an API server does when it refuses.
func status(code int, reason, message string) http.HandlerFunc {
	return answer(code,
		fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason,
			message))
}

func withHeader(h http.HandlerFunc, key, value string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(key, value)
		h(w, r)
	}
}

// hang sends no answer, and returns when the client has disconnected.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// reset closes the connection without an answer.
func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const web = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"web","namespace":"a","uid":"u1","resourceVersion":"7"},"data":{"k":"v"}}`

func get() call.Request {
	return call.Request{Verb: call.VerbGet, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web"}
}
