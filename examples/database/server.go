package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// state is a database as the server has it. Its only user is called as the database is.
type state struct {
	ID       string `json:"id"`
	Note     string `json:"note"` // of whoever made it; says nothing to the server
	SizeGi   int    `json:"sizeGi"`
	Password string `json:"password,omitempty"` // a digest when it is read: see digest
}

// server is one of databases, outside of the cluster. It knows nothing of idempotency keys: asked twice, it makes two. But
// it keeps a note with each, by which it can be found.
//
//	POST   /databases           {note}: makes one, and answers with its id
//	GET    /databases?note=…    those with a note
//	GET    /databases/{id}
//	PUT    /databases/{id}      {sizeGi, password}: how large it may become, and its user's password
//	DELETE /databases/{id}      and all that is in it
type server struct {
	mu        sync.Mutex
	databases map[string]state
	made      int
	changed   chan struct{} // a token while somebody has not seen the last change
}

func newServer() *server {
	return &server{databases: map[string]state{}, changed: make(chan struct{}, 1)}
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /databases", func(w http.ResponseWriter, r *http.Request) {
		var d state
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.made++
		d = state{ID: fmt.Sprintf("db%d", s.made), Note: d.Note}
		s.mu.Unlock()
		s.put(d)
		answer(w, d)
	})
	mux.HandleFunc("GET /databases", func(w http.ResponseWriter, r *http.Request) {
		note := r.URL.Query().Get("note")
		answer(w, slices.DeleteFunc(s.list(), func(d state) bool { return d.Note != note }))
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
		var wanted state
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.SizeGi, d.Password = wanted.SizeGi, digest(wanted.Password)
		s.put(d)
		answer(w, d)
	})
	mux.HandleFunc("DELETE /databases/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := s.find(w, r); ok {
			s.remove(d.ID)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // the caller is gone if this fails
}

func (s *server) find(w http.ResponseWriter, r *http.Request) (state, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.databases[r.PathValue("id")]
	if !ok {
		http.Error(w, "there is no database "+r.PathValue("id"), http.StatusNotFound)
	}
	return d, ok
}

// list returns all databases, those of an administrator's eyes.
func (s *server) list() []state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.databases))
}

func (s *server) put(d state) {
	s.change(func() { s.databases[d.ID] = d })
}

func (s *server) remove(id string) {
	s.change(func() { delete(s.databases, id) })
}

func (s *server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
