package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/install"
	"github.com/fairlead-io/fairlead/why"
)

func setup(t *testing.T) *operationbed.Bench {
	t.Helper()
	t.Parallel()
	b := operationbed.On(t, env.Config(t), env.Namespace(t))
	if err := install.CRDs(b.Ctx, b.Calls); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOperation(t *testing.T) { operationbed.PlayCourses(t, setup) }

func TestServiceAccountToken(t *testing.T) {
	b := setup(t)
	clients := kubernetes.NewForConfigOrDie(b.Config)
	if _, err := clients.CoreV1().ServiceAccounts(b.Namespace).Create(b.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "caller", Annotations: map[string]string{v1alpha1.AnnotationWebhookAudiences: "crm"},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 1)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		sent <- r.Header.Get("Authorization")
	}
	b.Webhook("cleanup", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "caller",
		}}
	})
	b.Start(nil)
	if v := operations.ViewOf(
		b.End(b.Schedule(operations.Request{Webhooks: []string{"cleanup"}})),
	); v.Status != operations.Succeeded {
		t.Fatalf("outcome %+v", v)
	}
	if got := <-sent; !strings.HasPrefix(got, "Bearer ey") {
		t.Errorf("authorization %.10q", got)
	}
}

// TestForbidden: an executor names the right that it lacks.
func TestForbidden(t *testing.T) {
	b := setup(t)
	b.Webhook("next", nil)
	nobody := rest.CopyConfig(b.Config)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	calls, err := call.New(call.Options{Config: nobody})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	var e *executor.Executor
	b.StartWith(func(o *executor.Options) { o.Calls = calls }, func(made *executor.Executor) { e = made })
	op := b.Schedule(operations.Request{Webhooks: []string{"next"}})
	of := why.Object{
		Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindOperation, Namespace: b.Namespace, Name: op.Name,
	}
	var got why.Answer
	b.Eventually("forbidden", func() bool {
		got = why.Ask(b.Ctx, of, e)
		return len(got.Causes) > 0 && got.Causes[0].Type == why.Forbidden
	})
	c := got.Causes[0]
	if c.About != nil || !strings.Contains(c.Message, "nobody may not") || c.Advice == "" {
		t.Errorf("the cause is %+v", c)
	}
	for key, want := range map[string]string{
		"user": "nobody", "resource": "operations/status", "rule": "operations/status", "error": "forbidden",
		"namespace": b.Namespace,
	} {
		if got := c.Evidence[key]; !strings.Contains(got, want) {
			t.Errorf("%s is %q, not %q: %v", key, got, want, c.Evidence)
		}
	}
	if c.Evidence["tries"] == "" {
		t.Errorf("the number of tries is missing: %v", c.Evidence)
	}
	if c.Since.IsZero() || c.Until.IsZero() || !got.Stuck {
		t.Errorf("the times of the failure and of the next try: %+v", got)
	}
}
