package executor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
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
