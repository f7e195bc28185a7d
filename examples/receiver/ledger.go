package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Effect is the record of one idempotency key.
type Effect struct {
	Key           string          `json:"key"`
	CorrelationID string          `json:"correlationID,omitempty"`
	Path          string          `json:"path"`
	Body          json.RawMessage `json:"body,omitempty"`
	Calls         int             `json:"calls"`
	Effects       int             `json:"effects"`
	Polls         int             `json:"polls,omitempty"`
}

// ledger records the effects by key. It is safe for concurrent use.
type ledger struct {
	fail, polls int
	log         *slog.Logger
	mu          sync.Mutex
	effects     map[string]*Effect
}

func newLedger(fail, polls int, log *slog.Logger) *ledger {
	return &ledger{fail: fail, polls: polls, log: log, effects: make(map[string]*Effect)}
}

func (l *ledger) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		if key, ok := l.take(w, r); ok {
			w.Header().Set("Location", "/jobs/"+url.PathEscape(key))
			answer(w, http.StatusAccepted, map[string]string{"status": "IN_PROGRESS"})
		}
	})
	mux.HandleFunc("POST /fail", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the database of this application is down"})
	})
	mux.HandleFunc("POST /gone", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusGone, map[string]string{"error": "the tenant was closed"})
	})
	mux.HandleFunc("POST /busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": "come back in a minute"})
	})
	mux.HandleFunc("POST /never", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/never/done")
		answer(w, http.StatusAccepted, map[string]string{"status": "IN_PROGRESS"})
	})
	mux.HandleFunc("GET /never/done", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "IN_PROGRESS"})
	})
	mux.HandleFunc("POST /{path...}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := l.take(w, r); ok {
			answer(w, http.StatusOK, map[string]string{"status": "SUCCEEDED"})
		}
	})
	mux.HandleFunc("GET /jobs/{key}", func(w http.ResponseWriter, r *http.Request) {
		if status, ok := l.poll(r.PathValue("key")); ok {
			answer(w, http.StatusOK, map[string]string{"status": status})
			return
		}
		answer(w, http.StatusNotFound, map[string]string{"error": "no such job"})
	})
	mux.HandleFunc("GET /effects", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, l.list())
	})
	return mux
}

// take counts a call and performs its effect once per key. If ok is false, it has already written the response.
func (l *ledger) take(w http.ResponseWriter, r *http.Request) (key string, ok bool) {
	key = r.Header.Get("Idempotency-Key")
	if key == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": "the header Idempotency-Key is missing"})
		return "", false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"error": "the body is larger than 1 MiB"})
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.effects[key]
	if e == nil {
		e = &Effect{Key: key, CorrelationID: r.Header.Get("X-Correlation-Id"), Path: r.URL.Path}
		if json.Valid(body) {
			e.Body = body
		}
		l.effects[key] = e
	}
	e.Calls++
	if e.Calls <= l.fail {
		l.log.InfoContext(r.Context(), "refused", "key", key, "call", e.Calls)
		answer(w, http.StatusServiceUnavailable, map[string]string{"error": "not yet: try again"})
		return key, false
	}
	if e.Effects == 0 {
		e.Effects = 1
		l.log.InfoContext(r.Context(), "cleaned up", "key", key, "call", e.Calls, "body", string(body))
	} else {
		l.log.InfoContext(r.Context(), "already done", "key", key, "call", e.Calls)
	}
	return key, true
}

func (l *ledger) poll(key string) (status string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.effects[key]
	if e == nil {
		return "", false
	}
	e.Polls++
	if e.Polls <= l.polls {
		return "IN_PROGRESS", true
	}
	return "SUCCEEDED", true
}

func (l *ledger) list() []Effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Effect, 0, len(l.effects))
	for _, e := range l.effects {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Effect) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has disconnected
}
