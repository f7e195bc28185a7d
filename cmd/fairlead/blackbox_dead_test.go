package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// without sends nothing until the client leaves.
func (s *wire) without(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.ended:
	}
}

// TestBlackboxHalfDead accepts requests and leaves them unfinished. Each is repaired, and a STATUS names the problem.
func TestBlackboxHalfDead(t *testing.T) {
	t.Parallel()
	half := frame("MODIFIED", wireConfigMap("a/one", "5000", "u", "never"))
	half = half[:len(half)/2]
	ways := map[string]struct {
		answer  func(s *wire) http.HandlerFunc
		reasons map[string]string // by place; "" for all others
	}{
		"NoAnswer": {func(s *wire) http.HandlerFunc { return s.without }, map[string]string{"": "Stalled"}},
		"HeaderOnly": {func(s *wire) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { s.hold(w, &wireRequest{http: r}) }
		}, map[string]string{"": "Stalled", "Resume": "Silent"}},
		"MiddleOfFrame": {func(s *wire) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(w, half)
				s.hold(w, &wireRequest{http: r})
			}
		}, map[string]string{"": "Stalled"}},
		"OnlyBookmarks": {func(s *wire) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = fmt.Fprint(w, bookmark(1006, false))
					w.(http.Flusher).Flush()
					pause(s, 20*time.Millisecond)
				}
			}
		}, map[string]string{"Initial": "Stalled"}},
		"TheSameForEver": {func(s *wire) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = fmt.Fprint(w,
						strings.Repeat(frame("ADDED", wireConfigMap("a/one", "1003", "uid-1003", "first")), 50))
					w.(http.Flusher).Flush()
					pause(s, time.Millisecond)
				}
			}
		}, map[string]string{"Initial": "Stalled"}},
		"UnknownType": {func(s *wire) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(w, frame("RENAMED", wireConfigMap("a/one", "1003", "uid-1003", "first")))
				s.hold(w, &wireRequest{http: r})
			}
		}, map[string]string{"Initial": "ProtocolError", "Resume": "ProtocolError"}},
		"EndsEarly": {func(*wire) http.HandlerFunc {
			return body(frame("ADDED", wireConfigMap("a/one", "1003", "uid-1003", "first")))
		}, map[string]string{"Initial": "ProtocolError"}},
		"Breaks": {func(*wire) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, half)
				_ = http.NewResponseController(w).Flush() // the connection may be broken
				panic(http.ErrAbortHandler)
			}
		}, map[string]string{"Initial": "Disconnected", "Resume": "Disconnected"}},
	}
	places := map[string]struct {
		is    func(*wireRequest) bool
		flags []string
	}{
		"Initial": {(*wireRequest).initial, nil},
		"Resume":  {(*wireRequest).resume, []string{"--no-watch-list"}},
		"List":    {func(r *wireRequest) bool { return r.list() && !r.probe() }, []string{"--no-watch-list"}},
		"Page": {
			func(r *wireRequest) bool { return r.query.Has("continue") },
			[]string{"--no-watch-list", "--page-size", "2"},
		},
		"Probe": {(*wireRequest).probe, []string{"--no-watch-list"}},
	}
	for name, way := range ways {
		for where, place := range places {
			reason := way.reasons[where]
			if reason == "" {
				reason = way.reasons[""]
			}
			if reason == "" || name == "MiddleOfFrame" && (where == "List" || where == "Page" || where == "Probe") {
				continue // half a frame in an empty list is an empty list
			}
			t.Run(name+"/"+where, func(t *testing.T) {
				t.Parallel()
				s := newWire(t)
				for _, key := range []string{"a/one", "a/two", "b/three"} {
					s.put(key, "first")
				}
				s.take = first(1, place.is, way.answer(s))
				flags := slices.Clone(place.flags)
				switch { // patience is short only if it must run out
				case reason != "Stalled" && reason != "Silent":
				case where == "Resume":
					flags = append(flags, "--silence-budget", "300ms")
				case where == "Probe":
					flags = append(flags, "--silence-budget", "300ms", "--list-progress-timeout", "300ms")
				default:
					flags = append(flags, "--list-progress-timeout", "300ms")
				}
				p := startProgram(t, s.url, flags...)
				if where == "Resume" {
					p.synced()
					s.put("a/one", "second")
				}
				p.awaitProblem(reason)
				s.remove("b/three")
				p.agrees(s)
				p.watches()
				p.finish()
			})
		}
	}
}

// TestBlackboxStuckFrame sends an event without its last bytes, like a proxy that drops them. A list delivers its
// content.
func TestBlackboxStuckFrame(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if r.resume() && r.query.Get("resourceVersion") == "1003" {
			_, _ = fmt.Fprint(w, `{"type":"MODIFIED","object":{`)
			s.hold(w, r)
			return true
		}
		return false
	}
	p := startProgram(t, s.url, "--no-watch-list", "--silence-budget", "150ms")
	p.synced()
	s.put("a/one", "second")
	p.agrees(s)
	p.awaitProblem("Stalled")
	p.watches()
	p.finish()
	if n := s.relists(); n != 1 {
		t.Errorf("%d lists", n)
	}
}

// hole is a proxy to a server on which connections fail silently: it accepts all bytes and returns none.
type hole struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	dead  []*atomic.Bool
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{listener: listener, to: to}
	h.running.Go(h.serve)
	t.Cleanup(func() {
		_ = listener.Close() // only the end of the listener matters
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		h.running.Wait()
	})
	return h
}

func (h *hole) serve() {
	for {
		near, err := h.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", h.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		dead := &atomic.Bool{}
		h.mu.Lock()
		h.conns, h.dead = append(h.conns, near, far), append(h.dead, dead)
		h.mu.Unlock()
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			h.running.Go(func() {
				pass(way[1], way[0], dead)
			})
		}
	}
}

func pass(to io.Writer, from io.Reader, dead *atomic.Bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !dead.Load() {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// kill makes all connections fail silently; new ones work.
func (h *hole) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.dead {
		d.Store(true)
	}
}

// TestBlackboxBlackHole makes connections fail silently, with HTTP/1.1, and with HTTP/2, where pings are not answered
// either.
func TestBlackboxBlackHole(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			s.put("a/one", "first")
			server := httptest.NewUnstartedServer(s)
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			h := newHole(t, server.Listener.Addr().String())
			p := startProgram(t, "https://"+h.listener.Addr().String(), "--insecure-skip-tls-verify",
				"--silence-budget", "300ms", "--list-progress-timeout", "300ms")
			p.synced()
			p.watches()
			h.kill()
			s.put("a/one", "second")
			reported := func(l printed) bool {
				return l.kind == "STATUS" && (l.reason == "Stalled" || l.reason == "Silent") && l.text("message") != ""
			}
			p.await("STATUS Stalled or Silent", reported)
			p.agrees(s)
			p.watches()
			p.finish()
			s.mu.Lock()
			defer s.mu.Unlock()
			if slices.ContainsFunc(s.requests, func(r wireRequest) bool { return r.http.Proto != protocol }) {
				t.Errorf("not over %s", protocol)
			}
		})
	}
}
