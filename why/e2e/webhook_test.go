package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// TestAdmissionWebhook: an admission webhook denies the writes of a program. Later the API server cannot reach it.
func TestAdmissionWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusForbidden, Message: "no secrets on Mondays"},
		}
		out.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(out).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	name := w.ns + ".example.com"
	none, fail := registrationv1.SideEffectClassNone, registrationv1.Fail
	hooks := w.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name: name, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: registrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule: registrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"},
				},
			}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hooks.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) // the test is over
	})
	var rt *fairlead.Runtime
	ready := make(chan struct{})
	rt = w.program(fn(func(ctx context.Context, m *configMap) (reconcile.Result, error) {
		<-ready
		s := secret(m.Namespace, "")
		s.GenerateName = "s-" // repeated until the webhook is in force
		if err := rt.Client().Create(ctx, s); err != nil {
			return reconcile.Retry(err)
		}
		return reconcile.After(100 * time.Millisecond), nil
	}), reconcile.WithBackoff(reconcile.Backoff{Cap: time.Second}))
	close(ready)
	w.expect(rt, "x", why.Forbidden, map[string]string{
		"refusedBy": "admission webhook " + name, "error": "no secrets on Mondays", "verb": "create", "status": "403",
	})
	server.Close()
	w.expect(rt, "x", why.BackOff, map[string]string{"webhook": name, "status": "500"})
}
