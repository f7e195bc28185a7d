// Package server is a database server outside of the cluster, which the operator calls. It keeps its state in memory.
package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// State is the state of one database. Its only user has the name of the database.
type State struct {
	ID       string `json:"id"`
	Note     string `json:"note"` // set by the creator; the server does not interpret it
	SizeGi   int    `json:"sizeGi"`
	Password string `json:"password,omitempty"` // a response has its Digest instead
}

// Digest returns the form of a password that the server includes in responses.
func Digest(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// Server is an HTTP API for databases. It ignores idempotency keys: two requests create two databases. A client can
// find its database by the note that it has set. A Server is safe for concurrent use.
//
//	POST   /databases           {note}: creates a database and returns its id
//	GET    /databases?note=…    lists the databases with a note
//	GET    /databases/{id}
//	PUT    /databases/{id}      {sizeGi, password}: sets the maximum size and the user's password
//	DELETE /databases/{id}      deletes the database and its data
type Server struct {
	mu        sync.Mutex
	databases map[string]State
	made      int
	changed   chan struct{} // holds a token after a change
}

// New returns a server without databases.
func New() *Server {
	return &Server{databases: map[string]State{}, changed: make(chan struct{}, 1)}
}

// Handler returns the HTTP API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /databases", func(w http.ResponseWriter, r *http.Request) {
		var d State
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.made++
		d = State{ID: fmt.Sprintf("db%d", s.made), Note: d.Note}
		s.mu.Unlock()
		s.Put(d)
		answer(w, d)
	})
	mux.HandleFunc("GET /databases", func(w http.ResponseWriter, r *http.Request) {
		note := r.URL.Query().Get("note")
		answer(w, slices.DeleteFunc(s.List(), func(d State) bool { return d.Note != note }))
	})
	mux.HandleFunc("GET /databases/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := s.find(w, r); ok {
			answer(w, d)
		}
	})
	mux.HandleFunc("PUT /databases/{id}", func(w http.ResponseWriter, r *http.Request) {
		d, ok := s.find(w, r)
		if !ok {
			return
		}
		var wanted State
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.SizeGi, d.Password = wanted.SizeGi, Digest(wanted.Password)
		s.Put(d)
		answer(w, d)
	})
	mux.HandleFunc("DELETE /databases/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := s.find(w, r); ok {
			s.Remove(d.ID)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.databases[r.PathValue("id")]
	if !ok {
		http.Error(w, "there is no database "+r.PathValue("id"), http.StatusNotFound)
	}
	return d, ok
}

// Made returns the number of databases that clients have created.
func (s *Server) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Changed returns a channel that holds a token if there was a change since the last receive.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// List returns all databases.
func (s *Server) List() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.databases))
}

// Put stores a database directly, without a client request. Its Password is a digest.
func (s *Server) Put(d State) {
	s.change(func() { s.databases[d.ID] = d })
}

// Remove deletes a database directly, without a client request.
func (s *Server) Remove(id string) {
	s.change(func() { delete(s.databases, id) })
}

func (s *Server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
