package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestCredentials: a controller requests only released Secrets. Calls start and stop with their releases. With
// --credentials=any it requests all Secrets.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	secrets := kubernetes.NewForConfigOrDie(s.config).CoreV1().Secrets(s.namespace)
	if _, err := secrets.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login"}, StringData: map[string]string{"token": "t-o-k-e-n"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	label := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelWebhookCredentials, value)
		if _, err := secrets.Patch(s.ctx, "login", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	valid := func(want string) {
		t.Helper()
		s.eventually("webhook "+want, func() bool {
			answer, err := call.Do(s.ctx, s.calls, call.Request{
				Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook,
				Namespace: s.namespace,
				Name:      "pay",
			}, call.Policy{})
			w := &v1alpha1.Webhook{}
			if err != nil || answer.Into(w) != nil {
				return false
			}
			c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionValid)
			return c != nil && c.Reason == want
		})
	}
	s.webhook("pay", "/", func(w *v1alpha1.WebhookSpec) {
		w.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	})
	p := s.controller(s.kubeconfig, "--insecure-no-auth")
	<-p.address
	ids := s.scheduleMany(1, operations.Request{Webhooks: []string{"pay"}})
	valid(v1alpha1.ReasonNotReleased)
	s.eventually("waiting", func() bool {
		op, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "0"})
		return err == nil && operations.ViewOf(op).Waiting != "" && len(op.Status.Webhooks) == 0
	})
	label(`"true"`)
	s.allSucceeded(ids, "pay")
	valid(v1alpha1.ReasonCompiled)
	label("null")
	valid(v1alpha1.ReasonNotReleased)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(s.ctx, t); err != nil {
		t.Error(err)
	}
	s.controller(s.kubeconfig, "--insecure-no-auth", "--credentials", "any")
	valid(v1alpha1.ReasonCompiled)
	if v := s.outcome("pay"); v.Status != operations.Succeeded {
		t.Errorf("%+v", v)
	}
}
