package operationbed

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Receiver counts calls by idempotency key and answers as the test says.
type Receiver struct {
	*httptest.Server
	namespace string // of the operations; keys are kept without it
	mu        sync.Mutex
	calls     map[string]int
	keys      []string
	began     map[string]time.Time // by id of the operation: its first webhook
	peeks     func()               // at a call of /peek, which is answered at once
	Answer    func(w http.ResponseWriter, r *http.Request, path string, call int)
}

// Peek has f called whenever /peek is.
func (rc *Receiver) Peek(f func()) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.peeks = f
}

func newReceiver(t *testing.T, namespace string) *Receiver {
	rc := &Receiver{namespace: namespace, calls: make(map[string]int), began: make(map[string]time.Time)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // a server notices that its client has gone only after that
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		rc.mu.Lock()
		key := strings.TrimPrefix(r.Header.Get("Idempotency-Key"), rc.namespace+".")
		if rc.calls[key]++; rc.calls[key] == 1 {
			rc.keys = append(rc.keys, key)
		}
		if id, of, _ := strings.Cut(key, "."); rc.began[id].IsZero() && !strings.Contains(of, ".") {
			rc.began[id] = time.Now()
		}
		n, answer, peeks := rc.calls[key], rc.Answer, rc.peeks
		rc.mu.Unlock()
		if r.URL.Path == "/peek" {
			peeks()
			return
		}
		if answer == nil {
			w.WriteHeader(http.StatusOK)
			return
		}
		answer(w, r, r.URL.Path, n)
	}))
	t.Cleanup(rc.Close)
	return rc
}

// Counts returns the number of calls of an operation, by what follows its id in the key.
func (rc *Receiver) Counts(operationID string) map[string]int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	out := make(map[string]int)
	for key, n := range rc.calls {
		if rest, ok := strings.CutPrefix(key, operationID+"."); ok {
			out[rest] = n
		}
	}
	return out
}

// FirstCall returns when the first call of an operation came, that of a compensation or notification aside.
func (rc *Receiver) FirstCall(operationID string) time.Time {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.began[operationID]
}

// Received waits until the receiver was asked.
func (b *Bench) Received(c <-chan string) string {
	b.T.Helper()
	select {
	case s := <-c:
		return s
	case <-b.Ctx.Done():
		b.T.Fatal("the receiver was not called")
		return ""
	}
}

// Pause waits like a slow receiver.
func Pause(r *http.Request, until <-chan struct{}) {
	select {
	case <-until:
	case <-r.Context().Done():
	}
}
