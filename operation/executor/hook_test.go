package executor_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
)

func TestWebhookThatAppears(t *testing.T) {
	b := setup(t)
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"late"}})
	b.eventually("picked up", func() bool { return b.get().Status.Phase == v1alpha1.PhaseInProgress })
	b.webhook("late", nil)
	if v := operation.ViewOf(b.end(op)); v.Status != operation.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

func TestWebhookStatus(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusInternalServerError)
	}
	b.webhook("broken", func(s *v1alpha1.WebhookSpec) { s.Breaker.Failures = 2 })
	b.webhook("bad", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.nothing(" })
	b.webhook("odd", func(s *v1alpha1.WebhookSpec) { s.Request.Headers = map[string]string{"Idempotency-Key": "mine"} })
	b.start(nil)
	b.schedule(operation.Request{Webhooks: []string{"broken"}})
	b.eventually("breaker open", func() bool {
		s := b.hook("broken").Status
		return s.Breaker != nil && s.Breaker.State == v1alpha1.BreakerOpen && s.Breaker.Until != nil
	})
	for name, want := range map[string][2]string{
		"bad": {"False", "spec.response.success"}, "odd": {"True", "Idempotency-Key"}, "broken": {"True", ""},
	} {
		b.eventually("condition Valid of "+name, func() bool {
			for _, c := range b.hook(name).Status.Conditions {
				if c.Type == v1alpha1.ConditionValid {
					return string(c.Status) == want[0] && strings.Contains(c.Message, want[1])
				}
			}
			return false
		})
	}
}

func TestServiceAccountToken(t *testing.T) {
	b := setup(t)
	clients := kubernetes.NewForConfigOrDie(b.config)
	if _, err := clients.CoreV1().ServiceAccounts(b.namespace).Create(b.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "caller", Annotations: map[string]string{v1alpha1.AnnotationWebhookAudiences: "crm"},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 1)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		sent <- r.Header.Get("Authorization")
	}
	b.webhook("cleanup", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "caller",
		}}
	})
	b.start(nil)
	if v := operation.ViewOf(
		b.end(b.schedule(operation.Request{Webhooks: []string{"cleanup"}})),
	); v.Status != operation.Succeeded {
		t.Fatalf("outcome %+v", v)
	}
	if got := <-sent; !strings.HasPrefix(got, "Bearer ey") {
		t.Errorf("authorization %.10q", got)
	}
}
