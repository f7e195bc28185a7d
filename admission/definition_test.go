package admission_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// modelOfPages starts a model of an API server that serves pages, with a definition of them.
func modelOfPages(t *testing.T, change func(*apiextensionsv1.CustomResourceDefinition)) (
	*apiserver.Server, *runtime.Scheme, apiextensions.CustomResourceDefinitionInterface, string,
) {
	t.Helper()
	const group = "test.example.com"
	scheme, crd := hookbed.Pages(group)
	change(crd)
	var resources []apiserver.Resource
	for _, version := range crd.Spec.Versions {
		resources = append(resources, apiserver.Resource{
			Group: group, Version: version.Name, Resource: "pages", Kind: "Page", Namespaced: true,
		})
	}
	server := modelServer(t, resources...)
	inJSON := rest.CopyConfig(server.Config())
	inJSON.ContentType = runtime.ContentTypeJSON // the model has no protobuf of definitions
	definitions := apiextensions.NewForConfigOrDie(inJSON).CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return server, scheme, definitions, crd.Name
}

func none(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

// No source of a kind is opened before the conversion is configured. The process is ready although the kind cannot be
// listed. Conversions need ready processes, since the API server reaches them by a Service.
func TestSourcesWaitForTheConversion(t *testing.T) {
	t.Parallel()
	server, scheme, _, _ := modelOfPages(t, none)
	b := hookbed.New(t, server.Config())
	configure := apiserver.Match{Verb: "patch", Resource: "customresourcedefinitions"}
	lists, watches := apiserver.Match{Verb: "list", Resource: "pages"}, apiserver.Match{Verb: "watch", Resource: "pages"}
	refuse := server.On(configure, apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
	server.On(lists, apiserver.Answer(apiserver.Failure(http.StatusInternalServerError)))
	server.On(watches, apiserver.Answer(apiserver.Failure(http.StatusInternalServerError)))
	rt := fairlead.New(server.Config(), fairlead.WithScheme(scheme))
	h := admission.Serve(rt, admission.Options{
		Name: "test", Namespace: "test-system", Service: "hooks", Listen: "127.0.0.1:0", Linger: -1,
	})
	admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
	for _, version := range []string{"v1", "v1alpha1"} {
		kind := schema.GroupVersionKind{Group: "test.example.com", Version: version, Kind: "Page"}
		if _, err := rt.Cache().Acquire(kind); err != nil {
			t.Fatal(err)
		}
	}
	hookbed.Run(t, rt)
	// A second one, so that a source that does not wait would have listed after its back-off.
	if err := server.WaitFor(b.Ctx, func(l apiserver.Log) bool {
		return len(refused(l.Select(configure))) >= 4
	}); err != nil {
		t.Fatal(err)
	}
	if l := server.Log(); l.Count(lists)+l.Count(watches) > 0 {
		t.Error("a source was opened before the conversion was configured")
	}
	refuse.Off()
	<-h.Ready()
	if err := server.WaitFor(b.Ctx, func(l apiserver.Log) bool {
		return l.Count(lists)+l.Count(watches) > 0
	}); err != nil {
		t.Fatal(err)
	}
	b.Eventually("the process is ready", func() string {
		w := httptest.NewRecorder()
		rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != http.StatusOK {
			return fmt.Sprint(w.Code, " ", w.Body.String())
		}
		return ""
	})
}

func refused(all []apiserver.Request) []apiserver.Request {
	return slices.DeleteFunc(all, func(r apiserver.Request) bool { return r.Code != http.StatusForbidden })
}

// A definition gets what the program needs, whatever its initial content.
func TestDefinitionIsCompleted(t *testing.T) {
	t.Parallel()
	webhook := func(at apiextensionsv1.WebhookClientConfig) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook:  &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}, ClientConfig: &at},
			}
		}
	}
	path, url := "/convert/page.test.example.com", "https://127.0.0.1:9443/elsewhere"
	service := &apiextensionsv1.ServiceReference{Namespace: "test-system", Name: "hooks", Path: &path}
	for _, tc := range []struct {
		reason   string
		was      func(*apiextensionsv1.CustomResourceDefinition)
		reported bool
		want     string // the strategy
	}{
		{"as shipped, with a Service", webhook(apiextensionsv1.WebhookClientConfig{Service: service}), false, "Webhook"},
		{"with the URL of another process", webhook(apiextensionsv1.WebhookClientConfig{URL: &url}), false, "Webhook"},
		{"None", none, true, "Webhook"},
		{"None and one version", func(crd *apiextensionsv1.CustomResourceDefinition) {
			none(crd)
			crd.Spec.Versions = crd.Spec.Versions[2:]
		}, false, "None"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			server, scheme, definitions, name := modelOfPages(t, tc.was)
			s := serve(t, server.Config(), func(h *admission.Hooks) {
				admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
					func(context.Context, *admission.Request[hookbed.Page]) error { return nil })
				admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
			}, fairlead.WithScheme(scheme))
			crd, err := definitions.Get(s.Ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			is := crd.Spec.Conversion
			if string(is.Strategy) != tc.want {
				t.Errorf("the strategy is %s, want %s", is.Strategy, tc.want)
			}
			if tc.want == "Webhook" {
				at := is.Webhook.ClientConfig
				if at.Service != nil || at.URL == nil || *at.URL != s.url+path || len(at.CABundle) == 0 {
					t.Errorf("the conversion is at %+v", at)
				}
			}
			reported := slices.ContainsFunc(crd.Status.Conditions,
				func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
					return c.Type == "fairlead.io/FieldsMayBeLost" && strings.Contains(c.Message, "3 versions")
				})
			if reported != tc.reported {
				t.Errorf("reported: %t, want %t; the conditions are %v", reported, tc.reported, crd.Status.Conditions)
			}
		})
	}
}

// The program completes a definition again as soon as a new apply has changed it.
func TestDefinitionIsCompletedAgain(t *testing.T) {
	t.Parallel()
	server, scheme, definitions, name := modelOfPages(t, none)
	b := hookbed.New(t, server.Config())
	rt := fairlead.New(server.Config(), fairlead.WithScheme(scheme))
	h := admission.Serve(rt, admission.Options{
		Name: "test", Namespace: "test-system", Service: "hooks", Listen: "127.0.0.1:0", Linger: -1,
		Certificates: admission.Certificates{Look: 5 * time.Minute}, // longer than the test waits
	})
	admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
	hookbed.Run(t, rt)
	select {
	case <-h.Ready():
	case <-b.Ctx.Done():
		t.Fatal("the hooks are not served")
	}
	for _, tc := range []struct {
		reason string
		apply  func(*apiextensionsv1.CustomResourceDefinition)
	}{
		{"without a caBundle", func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion.Webhook.ClientConfig.CABundle = nil
		}},
		{"with None", none},
	} {
		b.Eventually(tc.reason, func() string {
			crd, err := definitions.Get(b.Ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			tc.apply(crd)
			if _, err := definitions.Update(b.Ctx, crd, metav1.UpdateOptions{}); err != nil {
				return err.Error() // the program was faster
			}
			return ""
		})
		b.Eventually(tc.reason+", completed", func() string {
			crd, err := definitions.Get(b.Ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if c := crd.Spec.Conversion; c.Strategy != apiextensionsv1.WebhookConverter ||
				len(c.Webhook.ClientConfig.CABundle) == 0 {
				return fmt.Sprintf("the conversion is %+v", c)
			}
			return ""
		})
	}
}

// A program that is about to exit repairs the definition first.
func TestExitOnLostFieldsRepairsFirst(t *testing.T) {
	t.Parallel()
	server, scheme, definitions, name := modelOfPages(t, none)
	rt := fairlead.New(server.Config(), fairlead.WithScheme(scheme))
	h := admission.Serve(rt, admission.Options{
		Name: "test", Namespace: "test-system", Service: "hooks", Listen: "127.0.0.1:0", Linger: -1,
		ExitOnLostFields: true,
	})
	admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := rt.Run(ctx); !errors.Is(err, admission.ErrFieldsMayBeLost) || !strings.Contains(err.Error(), name) {
		t.Errorf("Run: %v", err)
	}
	crd, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
		t.Errorf("the conversion is %+v", crd.Spec.Conversion)
	}
}
