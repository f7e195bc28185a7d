package e2e_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

// slowServer is a proxy in front of an API server. It delays requests about Leases, and can leave all connections half
// open.
type slowServer struct {
	net.Listener
	next http.RoundTripper

	mu    sync.Mutex
	rnd   *rand.Rand
	delay time.Duration // of each answer
	conns []*halfOpen
}

// halfOpen is a connection whose peer may have disappeared without closing it.
type halfOpen struct {
	net.Conn
	gone, closed chan struct{}
	once         sync.Once
}

func (s *slowServer) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &halfOpen{Conn: conn, gone: make(chan struct{}), closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

func (c *halfOpen) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.gone:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *halfOpen) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *halfOpen) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// vanish leaves all current connections half open, and returns their number. New ones work.
func (s *slowServer) vanish() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		select {
		case <-c.closed:
		default:
			close(c.gone)
			n++
		}
	}
	s.conns = nil
	return n
}

func (s *slowServer) setDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// RoundTrip implements http.RoundTripper. The response to a request for a Lease takes the delay, of which the API
// server needs a part.
func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	s.mu.Lock()
	delay, ahead := time.Duration(0), time.Duration(0)
	if s.delay > 0 && strings.Contains(r.URL.Path, "/leases") && r.URL.Query().Get("watch") == "" {
		delay, ahead = s.delay, time.Duration(s.rnd.Int64N(int64(s.delay)))
	}
	s.mu.Unlock()
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	wait(ahead)
	answer, err := s.next.RoundTrip(r)
	wait(time.Until(begun.Add(delay)))
	return answer, err
}

// newSlowServer returns a proxy with HTTP/2, and a kubeconfig that uses it.
func newSlowServer(t *testing.T, config *rest.Config) (*slowServer, string) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &slowServer{next: transport, rnd: seed.New(t)}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the proxy uses its own credentials
		},
		Transport: s, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	s.Listener = server.Listener
	server.Listener = s
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	proxied := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return s, program.Kubeconfig(t, proxied, "none")
}

// lostSlots reports whether a watch has printed since line n that it holds no slot.
func (w *watching) lostSlots(n int) bool {
	for _, l := range w.All[n:] {
		if l.Type == "SHARD" && len(l.Slots) == 0 {
			return true
		}
	}
	return false
}

// TestSlowAPIServer checks with real processes that answers of 5 s and half-open connections cost no slot. It measures
// a takeover after a crash and after a graceful stop.
func TestSlowAPIServer(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	server, kubeconfig := newSlowServer(t, config)
	args := []string{
		"configmaps", "-n", namespace, "--kubeconfig", kubeconfig, "--shard-group", namespace + "/maps",
		"--shard-slots", "16",
	}
	first := startWatching(t, args...)
	first.holds(16)
	second := startWatching(t, args...)
	second.holds(8)
	first.holds(8)
	before := []int{len(first.All), len(second.All)}
	pass := func(d time.Duration) { <-time.After(d) } // for the duration of the fault; nothing is awaited
	server.setDelay(5 * time.Second)
	pass(40 * time.Second)
	server.setDelay(0)
	pass(5 * time.Second)
	if n := server.vanish(); n < 4 { // two for each process: for Leases and for watches
		t.Errorf("only %d connections are half open", n)
	}
	pass(20 * time.Second)
	begun := time.Now()
	third := startWatching(t, args...) // which makes the others print a line
	third.holds(5)
	less := func(l command.Line) bool { return l.Type == "SHARD" && len(l.Slots) < 8 }
	first.Await("fewer slots", less)
	second.Await("fewer slots", less)
	t.Logf("a member joined after %v", time.Since(begun))
	if first.lostSlots(before[0]) || second.lostSlots(before[1]) {
		t.Errorf("Slots were lost: %s\n%s", first.Errs, second.Errs)
	}
	begun = time.Now()
	third.kill()
	for _, w := range []*watching{first, second} {
		w.holds(8)
	}
	t.Logf("the slots of a killed member are held after %v", time.Since(begun))
	begun = time.Now()
	if code := second.Stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.Errs)
	}
	first.holds(16)
	t.Logf("the slots of a member that left are held after %v", time.Since(begun))
}
