package crdtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func webhook(changes ...any) map[string]any {
	obj := map[string]any{
		"apiVersion": "fairlead.io/v1alpha1",
		"kind":       "Webhook",
		"metadata":   map[string]any{"name": "cleanup", "namespace": "a"},
		"spec":       map[string]any{"request": map[string]any{"url": "https://receiver.example/{{.Operation.resourceID}}"}},
	}
	for i := 0; i < len(changes); i += 2 {
		obj = with(obj, changes[i].(string), changes[i+1])
	}
	return obj
}

func TestWebhookCreate(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, v1alpha1.KindWebhook)
	secret := map[string]any{"secretRef": map[string]any{"name": "s"}}
	tests := []struct {
		reason string
		obj    map[string]any
		want   string
	}{
		{"a URL is enough", webhook(), ""},
		{"a URL is required", webhook("spec.request.url", nil), "spec.request.url"},
		{"a request is required", webhook("spec.request", nil), "spec.request"},
		{"Async is a mode", webhook("spec.mode", "Async"), ""},
		{"AsyncCallback is a mode", webhook("spec.mode", "AsyncCallback"), ""},
		{"other modes are refused", webhook("spec.mode", "ASYNC"), "supported values"},
		{"header names are tokens", webhook("spec.request.headers", map[string]any{"a:b": "1"}), "names must be"},
		{"header values are templates", webhook("spec.request.headers", map[string]any{"X-Tenant": "{{.TenantID}}"}), ""},
		{
			"header values are bounded", webhook("spec.request.headers", map[string]any{"X": strings.Repeat("a", 8193)}),
			"values must not",
		},
		{"an empty body is a body", webhook("spec.request.body", ""), ""},
		{"the correlation header is a token", webhook("spec.correlationHeader", "a b"), "correlationHeader"},
		{"a request timeout is above zero", webhook("spec.requestTimeout", "0s"), "above zero"},
		{"a timeout is a duration", webhook("spec.timeout", "x"), "spec.timeout"},
		{"a poll interval is above zero", webhook("spec.poll.interval", "0s"), "from 50ms"},
		{"at least one try", webhook("spec.retry.maxAttempts", int64(0)), "maxAttempts"},
		{
			"the first interval is not above the last",
			webhook("spec.retry.initialInterval", "10s", "spec.retry.maxInterval", "9s"), "initialInterval",
		},
		{
			"the first interval is not above the default of the last", webhook("spec.retry.initialInterval", "10m"),
			"initialInterval",
		},
		{"equal intervals are fine", webhook("spec.retry.initialInterval", "5m"), ""},
		{"at least one in flight", webhook("spec.concurrency", int64(0)), "concurrency"},
		{"a rate is above zero", webhook("spec.ratePerSecond", int64(0)), "ratePerSecond"},
		{"a breaker opens after a failure at least", webhook("spec.breaker.failures", int64(0)), "failures"},
		{"a breaker is open for some time", webhook("spec.breaker.openFor", "0s"), "above zero"},
		{"expressions are bounded", webhook("spec.response.success", strings.Repeat("a", 4097)), "success"},
		{"no expression is longer than is compiled", webhook("spec.poll.error", strings.Repeat("a", 4096)), ""},
		{"a request timeout has a cap", webhook("spec.requestTimeout", "10m1s"), "up to 10m"},
		{"a request timeout at the cap", webhook("spec.requestTimeout", "10m"), ""},
		{"a timeout has a cap", webhook("spec.timeout", "721h"), "up to 720h"},
		{"a timeout at the cap", webhook("spec.timeout", "720h"), ""},
		{"polls have a floor", webhook("spec.poll.interval", "1ns"), "from 50ms"},
		{"polls at the floor", webhook("spec.poll.interval", "50ms"), ""},
		{"tries have a floor", webhook("spec.retry.initialInterval", "49ms"), "from 50ms"},
		{"tries at the floor", webhook("spec.retry.initialInterval", "50ms", "spec.retry.maxInterval", "50ms"), ""},
		{
			"the longest wait has a floor", webhook("spec.retry.initialInterval", "50ms", "spec.retry.maxInterval", "1ms"),
			"from 50ms",
		},
		{"tries have a cap", webhook("spec.retry.maxAttempts", int64(100001)), "maxAttempts"},
		{"tries at the cap", webhook("spec.retry.maxAttempts", int64(100000)), ""},
		{"auth has one way", webhook("spec.auth", map[string]any{}), "exactly one"},
		{"auth has not two ways", webhook("spec.auth", map[string]any{"basic": secret, "bearer": secret}), "exactly one"},
		{"basic", webhook("spec.auth.basic", secret), ""},
		{"bearer", webhook("spec.auth.bearer", secret), ""},
		{"mtls", webhook("spec.auth.mtls", secret), ""},
		{"a secret has a name", webhook("spec.auth.basic", map[string]any{"secretRef": map[string]any{}}), "name"},
		{"a secret has a name of an object", webhook("spec.auth.basic.secretRef.name", "../a"), "name"},
		{"basic needs a secret", webhook("spec.auth.basic", map[string]any{}), "secretRef"},
		{"oauth2", webhook("spec.auth.oauth2", with(secret, "tokenURL", "https://id.example/token"),
			"spec.auth.oauth2.scopes", []any{"a"}), ""},
		{"oauth2 needs a URL", webhook("spec.auth.oauth2", secret), "tokenURL"},
		{"oauth2 speaks HTTP", webhook("spec.auth.oauth2", with(secret, "tokenURL", "file:///etc/passwd")), "tokenURL"},
		{"oauth2 needs a secret", webhook("spec.auth.oauth2.tokenURL", "https://id.example/token"), "secretRef"},
		{"service account", webhook("spec.auth.serviceAccountToken",
			map[string]any{"audience": "https://receiver.example", "serviceAccountName": "sa"}), ""},
		{
			"a service account has a name", webhook("spec.auth.serviceAccountToken", map[string]any{"audience": "x"}),
			"serviceAccountName",
		},
		{"a token has an audience", webhook("spec.auth.serviceAccountToken",
			map[string]any{"audience": "", "serviceAccountName": "sa"}), "audience"},
		{"a token is not for the API server", webhook("spec.auth.serviceAccountToken", map[string]any{
			"audience": "https://kubernetes.default.svc.cluster.local", "serviceAccountName": "sa",
		}), "audience of the API server"},
		{"nor for its short name", webhook("spec.auth.serviceAccountToken",
			map[string]any{"audience": "kubernetes.default", "serviceAccountName": "sa"}), "audience of the API server"},
		{"signing", webhook("spec.signing", secret), ""},
		{"signing needs a secret", webhook("spec.signing", map[string]any{}), "secretRef"},
		{"tls", webhook("spec.tls.caSecretRef.name", "ca", "spec.tls.serverName", "x"), ""},
		{"a breaker is in one of three states", webhook("status.breaker.state", "Broken"), "supported values"},
		{"a breaker is half open", webhook("status.breaker.state", "HalfOpen", "status.breaker.until",
			"2026-01-02T03:04:05.000006Z"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			check(t, a.create(t.Context(), clone(t, tt.obj)), tt.want)
		})
	}
}

func TestUnknownFieldsArePruned(t *testing.T) {
	t.Parallel()
	obj := webhook("spec.unknown", "x")
	if errs := newAdmission(t, v1alpha1.KindWebhook).create(t.Context(), obj); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if _, ok := obj["spec"].(map[string]any)["unknown"]; ok {
		t.Error("an unknown field of spec was kept")
	}
	kept := operation("spec.requestObject.resource", map[string]any{"anything": map[string]any{"at": "all"}})
	want := clone(t, kept)["spec"].(map[string]any)["requestObject"]
	if errs := newAdmission(t, v1alpha1.KindOperation).create(t.Context(), kept); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if diff := cmp.Diff(want, kept["spec"].(map[string]any)["requestObject"]); diff != "" {
		t.Errorf("request object (-want +got):\n%s", diff)
	}
}

// The defaults of the schema and those of the Go types are the same, byte by byte.
func TestDefaultsAgree(t *testing.T) {
	t.Parallel()
	op := &v1alpha1.Operation{}
	op.APIVersion, op.Kind, op.Name, op.Namespace = "fairlead.io/v1alpha1", v1alpha1.KindOperation, "app-1", "a"
	op.Spec.OperationType, op.Spec.ResourceType, op.Spec.ResourceID = v1alpha1.OperationDelete, "app", "1"
	op.Default()
	wh := &v1alpha1.Webhook{}
	wh.APIVersion, wh.Kind, wh.Name, wh.Namespace = "fairlead.io/v1alpha1", v1alpha1.KindWebhook, "cleanup", "a"
	wh.Spec.Request.URL = "https://receiver.example/{{.Operation.resourceID}}"
	wh.Default()
	for _, tt := range []struct {
		reason string
		kind   string
		server map[string]any
		typed  any
	}{
		{"an Operation", v1alpha1.KindOperation, operation(), op},
		{"a Webhook", v1alpha1.KindWebhook, webhook(), wh},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			server := clone(t, tt.server)
			check(t, newAdmission(t, tt.kind).create(t.Context(), server), "")
			if diff := cmp.Diff(server, object(t, tt.typed)); diff != "" {
				t.Errorf("defaulted by the schema (-) and in Go (+):\n%s", diff)
			}
		})
	}
}
