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

// Receiver is a server for webhook calls. It counts calls by idempotency key. Answer writes the response; without it
// the status is 200.
type Receiver struct {
	*httptest.Server
	namespace string // namespace of the operations, which is removed from keys
	mu        sync.Mutex
	calls     map[string]int
	keys      []string
	began     map[string]time.Time // time of the first webhook call, by operation ID
	peeks     func()               // called for each call of /peek, which is answered at once
	Answer    func(w http.ResponseWriter, r *http.Request, path string, call int)
}

// Peek sets the function that each call of /peek calls.
func (rc *Receiver) Peek(f func()) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.peeks = f
}

func newReceiver(t *testing.T, namespace string) *Receiver {
	rc := &Receiver{namespace: namespace, calls: make(map[string]int), began: make(map[string]time.Time)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // a server detects a disconnect only after it has read the body
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

// Counts returns the number of calls of an operation, by the part of the key after the operation ID.
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

// FirstCall returns the time of the first webhook call of an operation, without compensations and notifications.
func (rc *Receiver) FirstCall(operationID string) time.Time {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.began[operationID]
}

// Received waits until the receiver is called.
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

// Pause waits until the channel is closed or the client disconnects, as a slow receiver does.
func Pause(r *http.Request, until <-chan struct{}) {
	select {
	case <-until:
	case <-r.Context().Done():
	}
}
