package executor_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestEndIsRecorded disturbs the write that records the end of an operation. Only that write is repeated.
func TestEndIsRecorded(t *testing.T) {
	touch := func(b *bench, name string) error { b.Touch(name); return nil }
	tests := map[string]struct {
		reason  string
		times   int64 // how often it is disturbed
		disturb func(b *bench, name string) error
		gone    bool
	}{
		"Conflict":  {reason: "Another writer has changed the object meanwhile.", times: 1, disturb: touch},
		"Conflicts": {reason: "And again before each try.", times: 3, disturb: touch},
		"Refused": {
			reason: "The API server fails for longer than a call is retried.", times: 2,
			disturb: func(*bench, string) error { return errors.New("connection lost") },
		},
		"Deleted": {
			reason: "It is deleted, and held by its finalizer.", times: 1, gone: true,
			disturb: func(b *bench, name string) error { b.Delete(name); return nil },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/bad" {
					w.WriteHeader(http.StatusBadRequest)
				}
			}
			for _, id := range []string{"work", "bad", "undo", "tell"} {
				b.Webhook(id, nil)
			}
			var ends atomic.Int64
			calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				name, status := strings.CutSuffix(r.URL.Path[strings.LastIndex(r.URL.Path, "/operations/")+len("/operations/"):],
					"/status")
				if r.Method != http.MethodPut || !status {
					return next.RoundTrip(r)
				}
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"phase":"Failed"`)) && ends.Add(1) <= tc.times {
					if err := tc.disturb(b, name); err != nil {
						return nil, err
					}
				}
				return next.RoundTrip(r)
			})
			recorder := &operationbed.Warnings{}
			b.Start(func(o *executor.Options) { o.Calls, o.Policy, o.Recorder = calls, call.Policy{Retries: -1}, recorder })
			op := b.Schedule(operations.Request{Webhooks: []string{"work", "bad"}, Compensate: []string{"undo"}, Notify: "tell"})
			b.Eventually("the end is reported", func() bool { return len(recorder.Told()) > 0 })
			b.Eventually("let go", func() bool {
				now, err := b.Scheduler.Get(b.Ctx, shop)
				return errors.Is(err, operations.ErrNotFound) || err == nil && len(now.Finalizers) == 0
			})
			if now, err := b.Scheduler.Get(b.Ctx, shop); tc.gone != errors.Is(err, operations.ErrNotFound) ||
				!tc.gone && now.Status.Phase != v1alpha1.PhaseFailed {
				t.Errorf("%s It became %+v (%v)", tc.reason, now, err)
			}
			want := map[string]int{"work": 1, "bad": 1, "undo.compensate": 1, "tell.notify": 1}
			if diff := cmp.Diff(want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("%s Calls, -want +got:\n%s", tc.reason, diff)
			}
			if reported := recorder.Told(); len(reported) != 1 || ends.Load() != tc.times+1 {
				t.Errorf("%s The end was written %d times, and reported as %q", tc.reason, ends.Load(), reported)
			}
		})
	}
}
