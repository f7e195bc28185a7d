package admission_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// A Runtime and each of its Clusters can host hooks.
var (
	_ admission.Host = (*fairlead.Runtime)(nil)
	_ admission.Host = (*fairlead.Host)(nil)
)

// model starts a model of an API server with webhook configurations and the resources in more.
func model(t *testing.T, more ...apiserver.Resource) *rest.Config {
	t.Helper()
	return modelServer(t, more...).Config()
}

func modelServer(t *testing.T, more ...apiserver.Resource) *apiserver.Server {
	t.Helper()
	resources := append(apiserver.DefaultResources(), more...)
	for resource, kind := range map[string]string{
		"validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
		"mutatingwebhookconfigurations":   "MutatingWebhookConfiguration",
	} {
		resources = append(resources, apiserver.Resource{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource, Kind: kind,
		})
	}
	server, err := apiserver.New(apiserver.Options{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// served are hooks that run on a model of an API server. The model does not call hooks, so tests do.
type served struct {
	*hookbed.Bench
	runtime *fairlead.Runtime
	url     string
	client  *http.Client // trusts the authority in the configuration
}

// serve declares hooks, at least one of which validates, and returns when they are served.
func serve(t *testing.T, cfg *rest.Config, declare func(*admission.Hooks), opts ...fairlead.Option) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{
		Bench: hookbed.New(t, cfg), runtime: fairlead.New(cfg, opts...), url: "https://" + listener.Addr().String(),
	}
	h := admission.Serve(s.runtime, admission.Options{
		Name: "test", Namespace: "test-system", Listener: listener, URL: s.url, Linger: -1,
	})
	declare(h)
	hookbed.Run(t, s.runtime)
	select {
	case <-h.Ready():
	case <-s.Ctx.Done():
		t.Fatal("the hooks are not served")
	}
	s.client = hookbed.Caller(s.Bundle("test"))
	return s
}

// question is a request of an API server about a ConfigMap.
type question struct {
	operation   admissionv1.Operation
	object, old *corev1.ConfigMap
	dryRun      bool
	timeout     time.Duration // default: hookbed.Long
}

// ask sends a review to a path, and returns the decision.
func (s *served) ask(path string, q question) (*admissionv1.AdmissionResponse, error) {
	s.T.Helper()
	raw := func(m *corev1.ConfigMap) runtime.RawExtension {
		if m == nil {
			return runtime.RawExtension{}
		}
		m = m.DeepCopy()
		m.APIVersion, m.Kind = "v1", "ConfigMap"
		text, err := json.Marshal(m)
		if err != nil {
			s.T.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	name := ""
	for _, m := range []*corev1.ConfigMap{q.object, q.old} {
		if m != nil {
			name = m.Name
		}
	}
	review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "of-the-question", Operation: q.operation, Namespace: "prod", Name: name, DryRun: &q.dryRun,
		Object: raw(q.object), OldObject: raw(q.old),
	}}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	review.Request.UserInfo.Username = "jane"
	body, err := json.Marshal(review)
	if err != nil {
		s.T.Fatal(err)
	}
	code, text, err := hookbed.TrySend(s.Ctx, s.client, http.MethodPost,
		fmt.Sprint(s.url, path, "?timeout=", cmp.Or(q.timeout, hookbed.Long)),
		"application/json", string(body))
	if err != nil {
		return nil, err
	}
	var answer admissionv1.AdmissionReview
	if code != http.StatusOK {
		return nil, fmt.Errorf("%d %s", code, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, err
	}
	if answer.Response == nil || answer.Response.UID != "of-the-question" {
		s.T.Errorf("the answer is %s", text)
	}
	return answer.Response, nil
}
