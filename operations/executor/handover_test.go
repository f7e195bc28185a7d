package executor_test

import (
	"net/http"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestHandover stops an executor in the middle of a call. The next executor repeats the call with the same key and
// attempt.
func TestHandover(t *testing.T) {
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
	first := b.Received(asked)
	attempt := b.Get().Status.Webhooks[0].AttemptID
	stop()
	b.Start(nil)
	if second := b.Received(asked); second != first {
		t.Errorf("key %s, then %s", first, second)
	}
	ended := b.End(op)
	if got := ended.Status.Webhooks[0]; got.AttemptID != attempt || got.RetriesCount != 0 ||
		got.State != v1alpha1.PhaseSuccess {
		t.Errorf("attempt %s became %+v", attempt, got)
	}
}
