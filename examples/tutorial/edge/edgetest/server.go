// Package edgetest has a small edge in memory, for tests and for this machine.
package edgetest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Server serves the API of the edge.
type Server struct {
	mux        http.ServeMux
	log        *slog.Logger
	activation time.Duration

	mu        sync.Mutex
	reserved  int                  // addresses since the start
	addresses map[string]string    // by idempotency key
	routes    map[string]time.Time // by host: the time at which the route becomes active
}

// New returns an edge whose routes become active after some time.
func New(activation time.Duration, log *slog.Logger) *Server {
	s := &Server{log: log, activation: activation, addresses: map[string]string{}, routes: map[string]time.Time{}}
	s.mux.HandleFunc("GET /{$}", s.state)
	s.mux.HandleFunc("POST /addresses", s.reserve)
	s.mux.HandleFunc("DELETE /addresses", s.release)
	s.mux.HandleFunc("PUT /routes/{host}", s.addRoute)
	s.mux.HandleFunc("GET /routes/{host}", s.route)
	s.mux.HandleFunc("DELETE /routes/{host}", s.removeRoute)
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

// State returns the number of addresses since the start, and those of addresses and routes that exist.
func (s *Server) State() (reserved, addresses, routes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved, len(s.addresses), len(s.routes)
}

func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "%d addresses since the start, %d in use; %d routes\n",
		s.reserved, len(s.addresses), len(s.routes))
}

func (s *Server) reserve(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	address, again := s.addresses[key]
	if !again {
		s.reserved++
		address = fmt.Sprintf("203.0.113.%d", s.reserved)
		s.addresses[key] = address
	}
	s.log.InfoContext(r.Context(), "reserve", "key", key, "address", address, "again", again)
	reply(w, map[string]any{"address": address})
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	s.log.InfoContext(r.Context(), "release", "address", s.addresses[r.Header.Get("Idempotency-Key")])
	delete(s.addresses, r.Header.Get("Idempotency-Key"))
	reply(w, map[string]any{})
}

func (s *Server) addRoute(w http.ResponseWriter, r *http.Request) {
	_, again := s.routes[r.PathValue("host")]
	if !again {
		s.routes[r.PathValue("host")] = time.Now().Add(s.activation)
	}
	s.log.InfoContext(r.Context(), "add route", "host", r.PathValue("host"), "address", r.FormValue("address"), "again",
		again)
	reply(w, map[string]any{})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	at, exists := s.routes[r.PathValue("host")]
	reply(w, map[string]any{"active": exists && !time.Now().Before(at)})
}

func (s *Server) removeRoute(w http.ResponseWriter, r *http.Request) {
	s.log.InfoContext(r.Context(), "remove route", "host", r.PathValue("host"))
	delete(s.routes, r.PathValue("host"))
	reply(w, map[string]any{})
}

func reply(w http.ResponseWriter, answer map[string]any) { _ = json.NewEncoder(w).Encode(answer) }
