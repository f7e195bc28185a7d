package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// TestConvert sends conversion reviews to the address in the definition.
func TestConvert(t *testing.T) {
	t.Parallel()
	const group = "test.example.com"
	scheme, crd := hookbed.Pages(group)
	var resources []apiserver.Resource
	for _, version := range crd.Spec.Versions {
		resources = append(resources, apiserver.Resource{
			Group: group, Version: version.Name, Resource: "pages", Kind: "Page", Namespaced: true,
		})
	}
	cfg := model(t, resources...)
	inJSON := rest.CopyConfig(cfg)
	inJSON.ContentType = runtime.ContentTypeJSON // the model has no protobuf of definitions
	definitions := apiextensions.NewForConfigOrDie(inJSON).CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg, func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
			func(context.Context, *admission.Request[hookbed.Page]) error { return nil })
		admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
		admission.Convert(h, hookbed.MidToPage, hookbed.PageToMid)
	}, fairlead.WithScheme(scheme))
	stanza, err := definitions.Get(s.Ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := stanza.Spec.Conversion.Webhook.ClientConfig
	caller := hookbed.Caller(at.CABundle)
	ask := func(body string) (int, string) {
		return hookbed.Send(t, caller, http.MethodPost, *at.URL, "application/json", body)
	}
	to := func(version, objects string) string {
		return fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"1",
			"desiredAPIVersion":"%s/%s","objects":[%s]}}`, group, version, objects)
	}
	review := func(objects string) string { return to("v1", objects) }
	object := func(version, metadata, spec string) string {
		return fmt.Sprintf(`{"kind":"Page","apiVersion":"%s/%s","metadata":{"name":"a","uid":"u"%s},"spec":{%s}}`,
			group, version, metadata, spec)
	}
	const secure = `,"annotations":{"pages.example.com/tls":"yes"}`
	for _, tc := range []struct{ reason, version, from, want string }{
		{
			"a spoke to the hub", "v1", object("v1alpha1", "", `"address":"web:80"`),
			object("v1", "", `"host":"web","port":"80"`),
		},
		{
			"the hub to a spoke", "v1alpha1", object("v1", "", `"host":"web","port":"443","tls":true`),
			object("v1alpha1", secure, `"address":"web:443"`),
		},
		{
			"back to the hub", "v1", object("v1alpha1", secure, `"address":"web:443"`),
			object("v1", "", `"host":"web","port":"443","tls":true`),
		},
		{
			"a spoke to a spoke", "v1beta1", object("v1alpha1", "", `"address":"web:80"`),
			object("v1beta1", "", `"hostName":"web"`),
		},
	} {
		code, body := ask(to(tc.version, tc.from))
		var answer struct {
			Response struct {
				UID              string
				ConvertedObjects []json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || answer.Response.UID != "1" ||
			len(answer.Response.ConvertedObjects) != 1 {
			t.Errorf("%s: %d %s", tc.reason, code, body)
			continue
		}
		var got, want map[string]any
		if err := json.Unmarshal(answer.Response.ConvertedObjects[0], &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
	for _, tc := range []struct {
		reason, body string
		code         int
		says         string
	}{
		{"nothing", "", 400, "cannot read the review"},
		{"garbage", "{", 400, "cannot read the review"},
		{
			"another review", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1"}}`, 400,
			"must be",
		},
		{"another group", review(`{"kind":"Page","apiVersion":"other.com/v1alpha1"}`), 200, "is not converted here"},
		{
			"another version", review(fmt.Sprintf(`{"kind":"Page","apiVersion":"%s/v7"}`, group)), 200,
			"no conversion for version v7",
		},
		{
			"another form", review(fmt.Sprintf(`{"kind":"Page","apiVersion":"%s/v1alpha1","spec":[]}`, group)), 200,
			`"Failure"`,
		},
		{"no objects", review(""), 200, `"Success"`},
		{"no host", review(object("v1alpha1", "", `"address":""`)), 200, "it has no host"},
		{"a function that panics", review(object("v1alpha1", "", `"address":"panic"`)), 200, "the conversion panicked"},
	} {
		code, body := ask(tc.body)
		if code != tc.code || !strings.Contains(body, tc.says) || strings.Contains(body, "goroutine") {
			t.Errorf("%s: %d %s", tc.reason, code, body)
		}
	}
}
