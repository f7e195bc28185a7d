package executor_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestRecordedBeforeItIsCalled: the API server has the attempt and the key of each call before the receiver is called
// (O2). The operation has a compensation, so its first try is recorded, too.
func TestRecordedBeforeItIsCalled(t *testing.T) {
	b := setup(t)
	var calls, unrecorded atomic.Int32
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
		calls.Add(1)
		key := r.Header.Get("Idempotency-Key")
		op, err := b.Scheduler.Get(b.Ctx, app("recorded"))
		if err != nil || !recordedIn(op, key) {
			unrecorded.Add(1)
		}
		switch {
		case n == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/main":
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	for _, name := range []string{"first", "main", "undo", "tell"} {
		b.Webhook(name, quick)
	}
	b.Start(nil)
	op := b.End(b.Schedule(operations.Request{
		Webhooks: []string{"first", "main"}, Compensate: []string{"undo"}, Notify: "tell", Resource: app("recorded"),
	}))
	if op.Status.Phase != v1alpha1.PhaseFailed || calls.Load() != 8 {
		t.Errorf("the operation is %s after %d calls, want Failed after two of each webhook", op.Status.Phase, calls.Load())
	}
	if n := unrecorded.Load(); n != 0 {
		t.Errorf("%d calls were made without a record of their attempt and key", n)
	}
}

// recordedIn reports whether a status has an attempt with a key.
func recordedIn(op *v1alpha1.Operation, key string) bool {
	entries := append(append([]v1alpha1.WebhookCallStatus{}, op.Status.Webhooks...), op.Status.Compensations...)
	if op.Status.Notification != nil {
		entries = append(entries, *op.Status.Notification)
	}
	for i := range entries {
		if entries[i].IdempotencyKey == key && entries[i].AttemptID != "" {
			return true
		}
	}
	return false
}
