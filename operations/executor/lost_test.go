package executor_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestCancelledBehindALostAnswer cancels an operation after its first attempt is recorded, but before the executor
// knows that. The answer to its write is lost. The executor finds the cancellation together with the recorded attempt.
func TestCancelledBehindALostAnswer(t *testing.T) {
	b := setup(t)
	answer := make(chan struct{})
	defer close(answer)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { operationbed.Pause(r, answer) }
	b.Webhook("cleanup", nil) // long: an executor that sees the cancellation only when the call returns is too late
	var lost atomic.Bool
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/operations/") ||
			!lost.CompareAndSwap(false, true) {
			return resp, err
		}
		resp.Body.Close()
		if _, err := b.Scheduler.Cancel(b.Ctx, shop, ""); err != nil {
			t.Error(err)
		}
		return nil, errors.New("the answer is lost")
	})
	b.Start(func(o *executor.Options) { o.Calls = calls })
	// It locks a resource, so that its attempt is recorded before the call.
	op := b.Schedule(operations.Request{
		Resource: shop, Webhooks: []string{"cleanup"},
		Lock: []operations.Resource{{Type: "db", ID: "7"}},
	})
	got := b.End(op)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionError); c == nil ||
		c.Reason != v1alpha1.ReasonCanceled {
		t.Errorf("it became %+v", got.Status)
	}
	if !lost.Load() {
		t.Error("no answer was lost")
	}
}

// TestFollowedBehindALostAnswer loses the answer to the write of an end. Another request replaces the operation before
// the executor knows that the end was written. The executor reports the end of the first operation and no end of the
// second.
func TestFollowedBehindALostAnswer(t *testing.T) {
	b := setup(t)
	b.Webhook("cleanup", nil)
	var lost atomic.Bool
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/operations/") || lost.Load() ||
			b.Get().EffectiveID() != "first" || !b.Get().Terminal() || !lost.CompareAndSwap(false, true) {
			return resp, err
		}
		resp.Body.Close()
		b.Schedule(operations.Request{ID: "second", Resource: shop, Webhooks: []string{"missing"}})
		return nil, errors.New("the answer is lost")
	})
	events := &messages{some: make(chan string, 64)}
	b.Start(func(o *executor.Options) { o.Calls, o.Recorder = calls, events })
	b.Schedule(operations.Request{ID: "first", Resource: shop, Webhooks: []string{"cleanup"}})
	for _, want := range []string{"operation first started", "operation first succeeded", "operation second started"} {
		if got := b.Received(events.some); got != want {
			t.Errorf("it reports that %s, want: %s", got, want)
		}
	}
	if !lost.Load() {
		t.Error("no answer was lost")
	}
}

// messages records the messages of events.
type messages struct{ some chan string }

func (m *messages) Operation(_ *v1alpha1.Operation, _ bool, _, message string) { m.some <- message }
