package admission_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/rights"
)

// A runtime, and each of its clusters, hosts hooks.
var (
	_ admission.Host = (*fairlead.Runtime)(nil)
	_ admission.Host = (*fairlead.Cluster)(nil)
)

func allow(context.Context, *maps) error { return nil }

// The configuration says all that decides when a hook is asked, and comes back when somebody changes it.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	certificates := admission.Certificates{Settle: time.Second, Look: 50 * time.Millisecond}
	o := admission.Options{Certificates: certificates, ExcludeNamespaces: []string{"leases"}}
	h := admissiontest.StartWith(t, env.Config(t), o, func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{
			OnFailure: admission.FailOpen, Timeout: 7 * time.Second, Namespaces: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}},
			},
			Objects:    &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Operations: []admission.Operation{admission.Delete},
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "request.name != 'y'"}},
		}, allow)
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed, Reinvoke: true}, allow)
		admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed, Subresource: "status"},
			func(context.Context, *admission.Request[corev1.Pod]) error { return nil })
	})
	configurations := b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	read := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		c, err := configurations.Get(b.ctx, h.Options.Name, metav1.GetOptions{})
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
		{"deleted", func() error { return configurations.Delete(b.ctx, h.Options.Name, metav1.DeleteOptions{}) }},
		{"no authority", func() error {
			_, err := configurations.Patch(b.ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
			return err
		}},
		{"another policy", func() error {
			_, err := configurations.Patch(b.ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]`), metav1.PatchOptions{})
			return err
		}},
		{"no hooks", func() error {
			_, err := configurations.Patch(b.ctx, h.Options.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/webhooks"}]`),
				metav1.PatchOptions{})
			return err
		}},
	} {
		if err := tc.change(); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		b.eventually(tc.reason, func() string { return cmp.Diff(was, read()) })
	}
	changing, err := b.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(b.ctx, h.Options.Name,
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
	admission.Validate(next, admission.Rule{OnFailure: admission.FailOpen}, allow)
	stop := start(t, rt)
	<-next.Ready()
	if _, err := b.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(b.ctx, h.Options.Name,
		metav1.GetOptions{}); err == nil {
		t.Error("the configuration of hooks that are not served any more is still there")
	}
	if w := read().Webhooks; len(w) != 1 || *w[0].ClientConfig.URL != o.URL+"/validate/validate.configmap.v1.core" ||
		len(w[0].MatchConditions) > 0 || len(w[0].ObjectSelector.MatchLabels) > 0 {
		t.Errorf("the next version has configured %+v", w)
	}
	stop()
}

// start runs a runtime until the test ends, or the function is called.
func start(t *testing.T, rt *fairlead.Runtime) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// The rights that hooks say they need are enough. Until they have them, the process
// is not ready, and says why.
func TestRights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg, system := env.Config(t), env.Namespace(t)
	group := system + ".example.com"
	scheme, crd := pages(t, group)
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
		func(context.Context, *admission.Request[page]) error { return nil })
	admission.Convert(h, oldToPage, pageToOld)
	readyz := func() (int, string) {
		w := httptest.NewRecorder()
		rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	start(t, rt)
	b.eventually("not ready", func() string {
		if code, body := readyz(); code != 503 || !strings.Contains(body, "forbidden") || !strings.Contains(body,
			"admission "+system) {
			return body
		}
		return ""
	})
	admin := b.api.RbacV1()
	objects, err := rights.Manifests(rt.Client().Mapper(), account, rt.Rights())
	if err != nil {
		t.Fatal(err)
	}
	root := fairlead.New(cfg).Client()
	defer root.Close()
	for _, o := range objects {
		if err := root.Create(b.ctx, o.(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(b.ctx)
		for _, err := range []error{
			admin.ClusterRoleBindings().Delete(ctx, system, metav1.DeleteOptions{}),
			admin.ClusterRoles().Delete(ctx, system, metav1.DeleteOptions{}),
			b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, system, metav1.DeleteOptions{}),
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
	// all of the work of a life: the Secret is gone, the configuration too
	if err := b.api.CoreV1().Secrets(system).Delete(b.ctx, system+"-webhook-ca", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(b.ctx, system,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	log.Take()
	b.eventually("it is all made again", func() string {
		_, err := b.api.CoreV1().Secrets(system).Get(b.ctx, system+"-webhook-ca", metav1.GetOptions{})
		_, other := b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.ctx, system, metav1.GetOptions{})
		return text(errors.Join(err, other))
	})
	if strings.Contains(log.String(), "forbidden") {
		t.Errorf("the rights are not enough:\n%s", log.String())
	}
}

func TestATypeThatIsNotServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	system := env.Namespace(t)
	scheme, _ := pages(t, system+".example.com")
	rt := fairlead.New(env.Config(t), fairlead.WithScheme(scheme))
	h := admission.Serve(rt, admission.Options{
		Name: system, Namespace: system, Listen: "127.0.0.1:0", Service: "hooks",
	})
	admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
		func(context.Context, *admission.Request[page]) error { return nil })
	err := rt.Run(b.ctx)
	var hook *admission.HookError
	if !errors.Is(err, admission.ErrNotServed) || !errors.As(err, &hook) || hook.Kind.Kind != "Page" ||
		hook.Hook != "validate.page.v1."+system+".example.com" || !strings.Contains(err.Error(), "configure_test.go:") {
		t.Errorf("Run: %v", err)
	}
	if _, err := b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.ctx, system,
		metav1.GetOptions{}); err == nil {
		t.Error("something was written")
	}
	if _, err := b.api.CoreV1().Secrets(system).Get(b.ctx, system+"-webhook-ca", metav1.GetOptions{}); err == nil {
		t.Error("a Secret was written")
	}
}

// Behind a Service the API server knows the program by the name of that.
func TestService(t *testing.T) {
	t.Parallel()
	b := setup(t)
	system := env.Namespace(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rt := fairlead.New(env.Config(t))
	var ahead atomic.Int64
	h := admission.Serve(rt, admission.Options{
		Name: system, Namespace: system, Service: "hooks", ServicePort: 8443, Listener: listener, Linger: -1,
		Certificates: admission.Certificates{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }},
		Only:         &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-this"}},
	})
	admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed}, allow)
	done := make(chan error, 1)
	go func() { done <- rt.Run(b.ctx) }()
	<-h.Ready()
	configurations := b.api.AdmissionregistrationV1().MutatingWebhookConfigurations()
	is, err := configurations.Get(b.ctx, system, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := configurations.Delete(b.ctx, system, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	path, port := "/mutate/mutate.configmap.v1.core", int32(8443)
	config := is.Webhooks[0].ClientConfig
	want := &admissionregistrationv1.ServiceReference{Namespace: system, Name: "hooks", Path: &path, Port: &port}
	if diff := cmp.Diff(want, config.Service); diff != "" {
		t.Error(diff)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CABundle)
	server := &tls.Config{RootCAs: roots, ServerName: "hooks." + system + ".svc"}
	conn, err := tls.Dial("tcp", listener.Addr().String(), server)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ready := func() string {
		w := httptest.NewRecorder()
		rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return fmt.Sprint(w.Code, " ", w.Body.String())
	}
	if got := ready(); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	ahead.Store(int64(31 * 24 * time.Hour))
	if got := ready(); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "the certificate has expired") {
		t.Error(got)
	}
	listener.Close() // what ends serving ends the runtime
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: %v", err)
	}
}
