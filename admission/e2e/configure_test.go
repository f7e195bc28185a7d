package e2e_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/rights"
)

// TestInvalidCondition ends Run, since no repetition of the write can succeed. The error names the hook.
func TestInvalidCondition(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	rt := fairlead.New(env.Config(t), fairlead.WithDegraded())
	h := admission.Serve(rt, admission.Options{
		Name: env.Namespace(t), Namespace: env.Namespace(t), Listen: "127.0.0.1:0", URL: "https://127.0.0.1:1", Linger: -1,
	})
	admission.Validate(h, admission.Rule{OnFailure: admission.FailOpen, Name: "fine.example.com.hooks"}, hookbed.Allow)
	admission.Validate(h, admission.Rule{
		OnFailure: admission.FailOpen, Name: "broken.example.com.hooks",
		Conditions: []admissionregistrationv1.MatchCondition{{Name: "broken", Expression: "request.name ="}},
	}, hookbed.Allow)
	err := rt.Run(b.Ctx)
	var hook *admission.HookError
	if !errors.As(err, &hook) || hook.Hook != "broken.example.com.hooks" ||
		!strings.Contains(hook.Place, "configure_test.go:") ||
		!strings.Contains(err.Error(), "matchConditions[0].expression") {
		t.Errorf("Run: %v", err)
	}
}

// The configuration has every rule about when a hook is called, and is restored after foreign changes.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	certificates := admission.Certificates{Settle: time.Second, Look: 50 * time.Millisecond}
	o := admission.Options{Certificates: certificates, ExcludeNamespaces: []string{"leases"}}
	h := admissiontest.StartWith(t, env.Config(t), o, func(_ *fairlead.Runtime, h *admission.Hooks) {
		admission.Validate(h, admission.Rule{
			OnFailure: admission.FailOpen, Timeout: 7 * time.Second, Namespaces: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}},
			},
			Objects:    &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Operations: []admission.Operation{admission.Delete},
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "request.name != 'y'"}},
		}, hookbed.Allow)
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed, Reinvoke: true}, hookbed.Allow)
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed, Subresource: "status"},
			func(context.Context, *admission.Request[corev1.Pod]) error { return nil })
	})
	configurations := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	read := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		c, err := configurations.Get(b.Ctx, h.Options.Name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		c.ObjectMeta = metav1.ObjectMeta{Labels: c.Labels}
		return c
	}
	was := read()
	is := was.Webhooks[0]
	fail := admissionregistrationv1.Ignore
	none, match, scope := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Equivalent,
		admissionregistrationv1.AllScopes
	url := h.Options.URL + "/validate/validate.configmap.v1.core"
	seven := int32(7)
	want := admissionregistrationv1.ValidatingWebhook{
		Name: "validate.configmap.v1.core", FailurePolicy: &fail, SideEffects: &none, MatchPolicy: &match,
		TimeoutSeconds:          &seven,
		AdmissionReviewVersions: []string{"v1"},
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: is.ClientConfig.CABundle},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"DELETE"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope,
			},
		}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: "NotIn", Values: is.NamespaceSelector.MatchExpressions[0].Values},
			{Key: "fairlead.io/admissiontest", Operator: "In", Values: []string{h.System}},
			{Key: "x", Operator: "Exists"},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "request.name != 'y'"}},
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
	for _, excluded := range []string{"kube-system", "leases", h.System} {
		if !strings.Contains(strings.Join(is.NamespaceSelector.MatchExpressions[0].Values, " "), excluded) {
			t.Errorf("%s is not excluded", excluded)
		}
	}
	for _, tc := range []struct {
		reason string
		change func() error
	}{
		{"deleted", func() error { return configurations.Delete(b.Ctx, h.Options.Name, metav1.DeleteOptions{}) }},
		{"no authority", func() error {
			_, err := configurations.Patch(b.Ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
			return err
		}},
		{"another policy", func() error {
			_, err := configurations.Patch(b.Ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]`), metav1.PatchOptions{})
			return err
		}},
		{"no hooks", func() error {
			_, err := configurations.Patch(b.Ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/webhooks"}]`),
				metav1.PatchOptions{})
			return err
		}},
	} {
		if err := tc.change(); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		b.Eventually(tc.reason, func() string { return cmp.Diff(was, read()) })
	}
	changing, err := b.API.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(b.Ctx, h.Options.Name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := changing.Webhooks[0].ReinvocationPolicy; *r != admissionregistrationv1.IfNeededReinvocationPolicy {
		t.Errorf("reinvocation %s", *r)
	}
	if r := changing.Webhooks[1].Rules[0].Resources[0]; r != "pods/status" {
		t.Errorf("resource %s", r)
	}
	// the next version of the program has no mutating hooks
	h.Stop()
	rt := fairlead.New(env.Config(t))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o = h.Options
	o.Listener, o.URL = listener, "https://"+listener.Addr().String()
	next := admission.Serve(rt, o)
	admission.Validate(next, admission.Rule{OnFailure: admission.FailOpen}, hookbed.Allow)
	stop := hookbed.Run(t, rt)
	<-next.Ready()
	if _, err := b.API.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(b.Ctx, h.Options.Name,
		metav1.GetOptions{}); err == nil {
		t.Error("the configuration of removed hooks still exists")
	}
	if w := read().Webhooks; len(w) != 1 || *w[0].ClientConfig.URL != o.URL+"/validate/validate.configmap.v1.core" ||
		len(w[0].MatchConditions) > 0 || len(w[0].ObjectSelector.MatchLabels) > 0 {
		t.Errorf("the next version has configured %+v", w)
	}
	stop()
}

// The rights that hooks declare suffice. Until they are granted, the process is not ready, and says why.
func TestRights(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	cfg, system := env.Config(t), env.Namespace(t)
	group := system + ".example.com"
	scheme, crd := hookbed.Pages(group)
	clustertest.InstallCRDs(t, cfg, clustertest.CRDObjects(crd))
	user := rest.CopyConfig(cfg)
	account := rights.Account{Namespace: system, Name: system}
	user.Impersonate = rest.ImpersonationConfig{UserName: account.User()}
	var log testlog.Book
	rt := fairlead.New(user, fairlead.WithScheme(scheme), fairlead.WithLogger(log.Logger()))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := admission.Serve(rt, admission.Options{
		Name: system, Namespace: system, Listener: listener, URL: "https://" + listener.Addr().String(), Linger: -1,
		Certificates: admission.Certificates{Settle: time.Second, Look: 50 * time.Millisecond},
	})
	admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
		func(context.Context, *admission.Request[hookbed.Page]) error { return nil })
	admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
	readyz := func() (int, string) {
		w := httptest.NewRecorder()
		rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	hookbed.Run(t, rt)
	b.Eventually("not ready", func() string {
		if code, body := readyz(); code != 503 || !strings.Contains(body, "forbidden") || !strings.Contains(body,
			"admission "+system) {
			return body
		}
		return ""
	})
	admin := b.API.RbacV1()
	objects, err := rights.Manifests(rt.Client().Mapper(), account, rt.Rights())
	if err != nil {
		t.Fatal(err)
	}
	root := fairlead.New(cfg).Client()
	defer root.Close()
	for _, o := range objects {
		if err := root.Create(b.Ctx, o.(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(b.Ctx)
		for _, err := range []error{
			admin.ClusterRoleBindings().Delete(ctx, system, metav1.DeleteOptions{}),
			admin.ClusterRoles().Delete(ctx, system, metav1.DeleteOptions{}),
			b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, system, metav1.DeleteOptions{}),
			apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions().Delete(ctx, crd.Name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	<-h.Ready()
	if code, body := readyz(); code != 200 {
		t.Errorf("ready: %d %s", code, body)
	}
	// a complete life: without the Secret and the configuration
	if err := b.API.CoreV1().Secrets(system).Delete(b.Ctx, system+"-webhook-ca", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(b.Ctx, system,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	log.Take()
	b.Eventually("Secret and configuration exist again", func() string {
		_, err := b.API.CoreV1().Secrets(system).Get(b.Ctx, system+"-webhook-ca", metav1.GetOptions{})
		_, other := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Ctx, system, metav1.GetOptions{})
		return hookbed.Text(errors.Join(err, other))
	})
	if strings.Contains(log.String(), "forbidden") {
		t.Errorf("the rights are not enough:\n%s", log.String())
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	hookbed.Service(t, env.Config(t), env.Namespace(t))
}
