package admission_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

const tlsNote = "pages.example.com/tls"

func oldToPage(_ context.Context, in *oldPage) (*page, error) {
	if in.Spec.Address == "panic" {
		panic("broken conversion")
	}
	host, port, _ := strings.Cut(in.Spec.Address, ":")
	if host == "" {
		return nil, errors.New("it has no host")
	}
	out := &page{}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Host, out.Spec.Port = host, port
	if out.Spec.TLS = out.Annotations[tlsNote] != ""; out.Spec.TLS {
		delete(out.Annotations, tlsNote)
	}
	return out, nil
}

func pageToOld(_ context.Context, in *page) (*oldPage, error) {
	out := &oldPage{}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Address = in.Spec.Host + ":" + in.Spec.Port
	if in.Spec.TLS {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, tlsNote, "yes")
	}
	return out, nil
}

func midToPage(_ context.Context, in *midPage) (*page, error) { // metadata are carried over
	out := &page{}
	out.Spec.Host = in.Spec.HostName
	return out, nil
}

func pageToMid(_ context.Context, in *page) (*midPage, error) {
	out := &midPage{}
	out.Spec.HostName = in.Spec.Host
	return out, nil
}

func TestConvert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := env.Config(t)
	group := env.Namespace(t) + ".example.com"
	scheme, crd := pages(t, group)
	clustertest.InstallCRDs(t, cfg, clustertest.CRDObjects(crd))
	definitions := apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions()
	t.Cleanup(func() {
		if err := definitions.Delete(context.WithoutCancel(b.ctx), crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var definition atomic.Int64 // times that a hook was asked about the definition that it depends on
	h := admissiontest.Start(t, cfg, func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailOpen},
			func(_ context.Context, r *admission.Request[apiextensionsv1.CustomResourceDefinition]) error {
				if r.Name == crd.Name {
					definition.Add(1)
				}
				return nil
			})
		admission.Convert(h, oldToPage, pageToOld)
		admission.Convert(h, midToPage, pageToMid)
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
			func(_ context.Context, r *admission.Request[page]) error {
				if r.Object.Spec.Host == "bad" {
					return errors.New("a bad host")
				}
				return nil
			})
	}, fairlead.WithScheme(scheme))
	at := func(version string) dynamic.ResourceInterface {
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: "pages"}
		return dynamic.NewForConfigOrDie(cfg).Resource(gvr).Namespace(h.Namespace)
	}
	object := func(version, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/" + version, "kind": "Page", "spec": spec,
			"metadata": map[string]any{"name": name, "labels": map[string]any{"l": "1"}},
		}}
	}
	spec := func(version, name string) any {
		t.Helper()
		o, err := at(version).Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if o.GetAPIVersion() != group+"/"+version || o.GetName() != name || o.GetUID() == "" || o.GetLabels()["l"] != "1" {
			t.Errorf("%s of %s: got %v", version, name, o.Object)
		}
		return o.Object["spec"]
	}
	b.eventually("the API server converts", func() string {
		_, err := at("v1alpha1").Create(b.ctx, object("v1alpha1", "probe", map[string]any{"address": ""}),
			metav1.CreateOptions{})
		if !strings.Contains(text(err), "it has no host") {
			return "got " + text(err)
		}
		return ""
	})
	if _, err := at("v1alpha1").Create(b.ctx, object("v1alpha1", "a", map[string]any{"address": "web:80"}),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secure := map[string]any{"host": "web", "port": "443", "tls": true}
	if _, err := at("v1").Create(b.ctx, object("v1", "b", secure), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		version, name string
		want          map[string]any
	}{
		{"v1alpha1", "a", map[string]any{"address": "web:80"}},
		{"v1beta1", "a", map[string]any{"hostName": "web"}},
		{"v1", "a", map[string]any{"host": "web", "port": "80"}},
		{"v1alpha1", "b", map[string]any{"address": "web:443"}},
		{"v1beta1", "b", map[string]any{"hostName": "web"}},
		{"v1", "b", secure},
	} {
		if diff := cmp.Diff(any(tc.want), spec(tc.version, tc.name)); diff != "" {
			t.Errorf("%s at %s: %s", tc.name, tc.version, diff)
		}
	}
	// what v1alpha1 cannot say survives a write of it, and lists are converted
	old, err := at("v1alpha1").Get(b.ctx, "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Object["spec"] = map[string]any{"address": "web:8443"}
	if _, err := at("v1alpha1").Update(b.ctx, old, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(map[string]any{"host": "web", "port": "8443", "tls": true}), spec("v1", "b")); diff != "" {
		t.Errorf("written at v1alpha1: %s", diff)
	}
	list, err := at("v1alpha1").List(b.ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Items[0].GetName() != "a" || list.Items[1].GetName() != "b" {
		t.Errorf("list: %v, %v", list, err)
	}
	// a hook for one version is asked about writes of all of them
	for version, spec := range map[string]map[string]any{
		"v1": {"host": "bad"}, "v1alpha1": {"address": "bad:80"}, "v1beta1": {"hostName": "bad"},
	} {
		_, err := at(version).Create(b.ctx, object(version, "c", spec), metav1.CreateOptions{})
		if !strings.Contains(text(err), "denied the request: a bad host") {
			t.Errorf("%s: %v", version, err)
		}
	}
	_, err = at("v1alpha1").Create(b.ctx, object("v1alpha1", "d", map[string]any{"address": "panic"}),
		metav1.CreateOptions{})
	if !strings.Contains(text(err), "the conversion panicked") || strings.Contains(text(err), "goroutine") {
		t.Errorf("a function that panics: %v", err)
	}
	if _, err := definitions.Patch(b.ctx, crd.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`),
		metav1.PatchOptions{}); err != nil || definition.Load() > 0 {
		t.Errorf("the definition: asked %d times, %v", definition.Load(), err)
	}
	stanza, err := definitions.Get(b.ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(body string) (int, string) {
		return post(t, caller(b.bundle(h)), *stanza.Spec.Conversion.Webhook.ClientConfig.URL, "application/json", body)
	}
	review := func(objects string) string {
		return fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"1",
			"desiredAPIVersion":"%s/v1","objects":[%s]}}`, group, objects)
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
			"has to be",
		},
		{"another group", review(`{"kind":"Page","apiVersion":"other.com/v1alpha1"}`), 200, "is not converted here"},
		{
			"another version", review(fmt.Sprintf(`{"kind":"Page","apiVersion":"%s/v7"}`, group)), 200,
			"nothing converts version v7",
		},
		{
			"another form", review(fmt.Sprintf(`{"kind":"Page","apiVersion":"%s/v1alpha1","spec":[]}`, group)), 200,
			`"Failure"`,
		},
		{"no objects", review(""), 200, `"Success"`},
	} {
		if code, body := ask(tc.body); code != tc.code || !strings.Contains(body, tc.says) {
			t.Errorf("%s: %d %s", tc.reason, code, body)
		}
	}
}

// post sends a body and returns what is answered.
func post(t *testing.T, c *http.Client, url, contentType, body string) (int, string) {
	t.Helper()
	return send(t, c, http.MethodPost, url, contentType, body)
}
