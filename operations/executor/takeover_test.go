package executor_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestWithoutBarrier takes over while the age of the cache is unknown, as with a watch that delivers no events.
// Operations continue.
func TestWithoutBarrier(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, n int) {
		asked <- r.Header.Get("Idempotency-Key")
		if n == 1 {
			<-r.Context().Done()
		}
	}
	b.Webhook("cleanup", nil)
	stop := b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"cleanup"}})
	b.Received(asked)
	stop()
	b.Probe = func(ctx context.Context) (string, error) { return "9999999999999", nil } // a version that no watch reaches
	b.Start(nil)
	b.Received(asked)
	if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess || got.Status.Webhooks[0].RetriesCount != 0 {
		t.Errorf("it became %+v", got.Status)
	}
}

// TestStaleSuccessor takes over with a cache that shows a call as started. The predecessor has recorded the answer
// since, so neither the call nor a poll is repeated.
func TestStaleSuccessor(t *testing.T) {
	attempted := func(w v1alpha1.WebhookCallStatus) bool { return w.AttemptID != "" }
	tests := map[string]struct {
		reason string
		hook   func(*v1alpha1.WebhookSpec)
		path   string // of the call whose answer the receiver holds
		seen   func(w v1alpha1.WebhookCallStatus) bool
		want   map[string]int
	}{
		"Sync": {
			reason: "A call whose answer is recorded is over.", path: "/work", seen: attempted,
			want: map[string]int{"work": 1, "next": 1},
		},
		"Async": {
			reason: "So is an accepted one.", path: "/work", seen: attempted,
			hook: polled(webhook.MinInterval), want: map[string]int{"work": 3, "next": 1},
		},
		"Poll": {
			reason: "So is a poll that reported the end.", path: "/jobs/1",
			seen: func(w v1alpha1.WebhookCallStatus) bool { return w.LastPollTimestamp != nil },
			hook: polled(webhook.MinInterval), want: map[string]int{"work": 3, "next": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			held, answer := make(chan string, 1), make(chan struct{})
			var made atomic.Int32 // calls other than polls
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, call int) {
				if path == "/work" {
					made.Add(1)
				}
				if path == tc.path && (call != 2 || tc.path == "/work") {
					select {
					case held <- path:
					default:
					}
					operationbed.Pause(r, answer)
				}
				switch {
				case path == "/work" && tc.hook != nil:
					w.Header().Set("Location", "/jobs/1")
					w.WriteHeader(http.StatusAccepted)
				case path == "/jobs/1" && call < 3:
					_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
				case path == "/jobs/1":
					_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
				}
			}
			b.Webhook("work", tc.hook)
			b.Webhook("next", nil)
			first := b.Prepare(b.Config, nil)
			first.Begin()
			ice := &freezer{}
			second := b.Prepare(disturb.Config(b.Config, ice.roundTrip), nil)
			op := b.Schedule(operations.Request{Webhooks: []string{"work", "next"}})
			b.Received(held)
			b.Eventually("seen by the successor", func() bool {
				known, err := store.Of[v1alpha1.Operation](second.Operations).Get(store.Key{Namespace: b.Namespace, Name: op.Name})
				return err == nil && len(known.Status.Webhooks) == 1 && tc.seen(known.Status.Webhooks[0])
			})
			ice.freeze()
			close(answer)
			if err := first.Drain(b.Ctx); err != nil {
				t.Fatal(err)
			}
			first.Stop()
			if known, err := store.Of[v1alpha1.Operation](second.Operations).Get(
				store.Key{Namespace: b.Namespace, Name: op.Name},
			); err != nil || known.ResourceVersion == b.Get().ResourceVersion {
				t.Fatalf("the successor's cache is not stale: %v", err)
			}
			second.Begin()
			if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
				t.Errorf("%s It became %+v", tc.reason, got.Status)
			}
			if diff := cmp.Diff(tc.want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("%s Calls, -want +got:\n%s", tc.reason, diff)
			}
			if n := made.Load(); n != 1 {
				t.Errorf("%s It was called %d times", tc.reason, n)
			}
		})
	}
}

func polled(interval time.Duration) func(*v1alpha1.WebhookSpec) {
	return func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: interval}
	}
}

// freezer stops the events of watches from some moment on.
type freezer struct {
	mu     sync.Mutex
	frozen bool
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = true
}

func (f *freezer) hold(ctx context.Context) error {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if !frozen {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *freezer) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !strings.Contains(r.URL.Path, "/operations") {
		return next.RoundTrip(r)
	}
	if err := f.hold(r.Context()); err != nil {
		return nil, err
	}
	answer, err := next.RoundTrip(r)
	if err == nil {
		answer.Body = &frozenBody{answer.Body, f, r.Context()}
	}
	return answer, err
}

type frozenBody struct {
	io.ReadCloser
	ice *freezer
	ctx context.Context // of the request to which this is the answer
}

func (b *frozenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if held := b.ice.hold(b.ctx); held != nil {
		return 0, errors.Join(held, err)
	}
	return n, err
}
