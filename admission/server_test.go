package admission_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// A request that no API server would send is refused, and the function is not called.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := serve(t, model(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailOpen}, func(_ context.Context, r *hookbed.Maps) error {
			return errors.New("asked about " + r.Object.Name)
		})
	})
	const path = validatePath
	review := func(request string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + request + `}`
	}
	good := review(`{"uid":"1","operation":"CREATE","object":{"kind":"ConfigMap","apiVersion":"v1",` +
		`"metadata":{"name":"x"}}}`)
	for _, tc := range []struct {
		reason, method, path, kind, body string
		code                             int
		says                             string
	}{
		{"as the API server does", "POST", path + "?timeout=5s", "application/json", good, 200, "asked about x"},
		{"with a charset", "POST", path, "application/json; charset=utf-8", good, 200, "asked about x"},
		{"another path", "POST", "/validate/other", "application/json", good, 404, ""},
		{"GET", "GET", path, "application/json", good, 405, ""},
		{"no content type", "POST", path, "", good, 415, "application/json"},
		{"another content type", "POST", path, "text/plain", good, 415, "application/json"},
		{"nothing", "POST", path, "application/json", "", 400, "cannot read the review"},
		{"garbage", "POST", path, "application/json", "\x00\xff{", 400, "cannot read the review"},
		{
			"another version", "POST", path, "application/json", strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1), 400,
			"must be",
		},
		{"another kind", "POST", path, "application/json", `{"kind":"Pod","apiVersion":"v1"}`, 400, "must be"},
		{"no request", "POST", path, "application/json", review("null"), 400, "no request"},
		{"no uid", "POST", path, "application/json", review("{}"), 400, "no request with a uid"},
		{"no object", "POST", path, "application/json", review(`{"uid":"1","operation":"CREATE"}`), 400, "no object"},
		{
			"another operation", "POST", path, "application/json", strings.Replace(good, "CREATE", "DELETE", 1), 400,
			"does not handle",
		},
		{
			"no old object", "POST", path, "application/json", strings.Replace(good, "CREATE", "UPDATE", 1), 400, "no object",
		},
		{
			"another type", "POST", path, "application/json",
			review(`{"uid":"1","operation":"CREATE","object":{"kind":"Pod","apiVersion":"v1"}}`), 400, "it is a /v1, Kind=Pod",
		},
		{
			"another form", "POST", path, "application/json",
			review(`{"uid":"1","operation":"CREATE","object":{"kind":"ConfigMap","apiVersion":"v1","data":[]}}`), 400,
			"cannot decode",
		},
		{"too large", "POST", path, "application/json", good + strings.Repeat(" ", 8<<20), 413, "longer than"},
	} {
		code, body := hookbed.Send(t, s.client, tc.method, s.url+tc.path, tc.kind, tc.body)
		if code != tc.code || !strings.Contains(body, tc.says) {
			t.Errorf("%s: %d %.300s", tc.reason, code, body)
		}
	}
	w := httptest.NewRecorder()
	s.runtime.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if strings.Contains(w.Body.String(), `operation="delete"`) {
		t.Error("strangers add labels to metrics")
	}
	if code, body := hookbed.Send(t, s.client, "POST", s.url+path, "application/json", good); code != 200 ||
		!strings.Contains(body, "asked about x") {
		t.Errorf("afterwards: %d %s", code, body)
	}
}
