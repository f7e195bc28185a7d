package executor_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/why"
)

func TestWebhookThatAppears(t *testing.T) {
	b := setup(t)
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"late"}})
	b.Eventually("picked up", func() bool { return b.Get().Status.Phase == v1alpha1.PhaseInProgress })
	b.Webhook("late", nil)
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

func TestWebhookStatus(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusInternalServerError)
	}
	b.Webhook("broken", func(s *v1alpha1.WebhookSpec) { s.Breaker.Failures = 2 })
	b.Webhook("bad", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.nothing(" })
	b.Webhook("odd", func(s *v1alpha1.WebhookSpec) { s.Request.Headers = map[string]string{"Idempotency-Key": "mine"} })
	b.Start(nil)
	b.Schedule(operations.Request{Webhooks: []string{"broken"}})
	b.Eventually("breaker open", func() bool {
		s := b.Hook("broken").Status
		return s.Breaker != nil && s.Breaker.State == v1alpha1.BreakerOpen && s.Breaker.Until != nil
	})
	for name, want := range map[string][2]string{
		"bad": {"False", "spec.response.success"}, "odd": {"True", "Idempotency-Key"}, "broken": {"True", ""},
	} {
		b.Eventually("condition Valid of "+name, func() bool {
			for _, c := range b.Hook(name).Status.Conditions {
				if c.Type == v1alpha1.ConditionValid {
					return string(c.Status) == want[0] && strings.Contains(c.Message, want[1])
				}
			}
			return false
		})
	}
}

// TestBreakerOfPredecessor: an executor starts with the breakers that its predecessor recorded. It makes no call while
// a breaker is open, and keeps the record.
func TestBreakerOfPredecessor(t *testing.T) {
	b := setup(t)
	var calls atomic.Int32
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		if path == "/broken" {
			calls.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	b.Webhook("broken", func(s *v1alpha1.WebhookSpec) {
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hours(1)}
	})
	b.Webhook("good", nil)
	open := func() bool {
		s := b.Hook("broken").Status.Breaker
		return s != nil && s.State == v1alpha1.BreakerOpen
	}
	stop := b.Start(nil)
	b.Schedule(operations.Request{Resource: app("one"), Webhooks: []string{"broken"}})
	b.Eventually("breaker open", open)
	stop()
	var successor *executor.Executor
	b.StartWith(nil, func(e *executor.Executor) { successor = e })
	op := b.Schedule(operations.Request{Resource: app("two"), Webhooks: []string{"broken"}})
	a := asking{b, successor}
	a.awaitFirstOf(a.object("Operation", op.Name), why.CircuitOpen)
	b.End(b.Schedule(operations.Request{Resource: app("three"), Webhooks: []string{"good"}}))
	if n := calls.Load(); n != 1 || !open() {
		t.Errorf("%d calls were made, the breaker is open: %t", n, open())
	}
}
