package e2e_test

import (
	"context"
	"errors"
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
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

func TestConvert(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	cfg := env.Config(t)
	group := env.Namespace(t) + ".example.com"
	scheme, crd := hookbed.Pages(group)
	clustertest.InstallCRDs(t, cfg, clustertest.CRDObjects(crd))
	definitions := apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions()
	t.Cleanup(func() {
		if err := definitions.Delete(context.WithoutCancel(b.Ctx), crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var definition atomic.Int64 // calls of a hook for the definition on which it depends
	h := admissiontest.Start(t, cfg, func(_ *fairlead.Runtime, h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailOpen, Timeout: hookbed.Long},
			func(_ context.Context, r *admission.Request[apiextensionsv1.CustomResourceDefinition]) error {
				if r.Name == crd.Name {
					definition.Add(1)
				}
				return nil
			})
		admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
		admission.Convert(h, hookbed.MidToPage, hookbed.PageToMid)
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed, Timeout: hookbed.Long},
			func(_ context.Context, r *admission.Request[hookbed.Page]) error {
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
		o, err := at(version).Get(b.Ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if o.GetAPIVersion() != group+"/"+version || o.GetName() != name || o.GetUID() == "" || o.GetLabels()["l"] != "1" {
			t.Errorf("%s of %s: got %v", version, name, o.Object)
		}
		return o.Object["spec"]
	}
	b.Eventually("the API server converts", func() string {
		_, err := at("v1alpha1").Create(b.Ctx, object("v1alpha1", "probe", map[string]any{"address": ""}),
			metav1.CreateOptions{})
		if !strings.Contains(hookbed.Text(err), "it has no host") {
			return "got " + hookbed.Text(err)
		}
		return ""
	})
	if _, err := at("v1alpha1").Create(b.Ctx, object("v1alpha1", "a", map[string]any{"address": "web:80"}),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secure := map[string]any{"host": "web", "port": "443", "tls": true}
	if _, err := at("v1").Create(b.Ctx, object("v1", "b", secure), metav1.CreateOptions{}); err != nil {
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
	// fields that v1alpha1 lacks survive a write of it, and lists are converted
	old, err := at("v1alpha1").Get(b.Ctx, "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old.Object["spec"] = map[string]any{"address": "web:8443"}
	if _, err := at("v1alpha1").Update(b.Ctx, old, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(map[string]any{"host": "web", "port": "8443", "tls": true}), spec("v1", "b")); diff != "" {
		t.Errorf("written at v1alpha1: %s", diff)
	}
	list, err := at("v1alpha1").List(b.Ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Items[0].GetName() != "a" || list.Items[1].GetName() != "b" {
		t.Errorf("list: %v, %v", list, err)
	}
	// a hook for one version is called for writes of all versions
	for version, spec := range map[string]map[string]any{
		"v1": {"host": "bad"}, "v1alpha1": {"address": "bad:80"}, "v1beta1": {"hostName": "bad"},
	} {
		_, err := at(version).Create(b.Ctx, object(version, "c", spec), metav1.CreateOptions{})
		if !strings.Contains(hookbed.Text(err), "denied the request: a bad host") {
			t.Errorf("%s: %v", version, err)
		}
	}
	_, err = at("v1alpha1").Create(b.Ctx, object("v1alpha1", "d", map[string]any{"address": "panic"}),
		metav1.CreateOptions{})
	if !strings.Contains(hookbed.Text(err), "the conversion panicked") ||
		strings.Contains(hookbed.Text(err), "goroutine") {
		t.Errorf("a function that panics: %v", err)
	}
	if _, err := definitions.Patch(b.Ctx, crd.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`),
		metav1.PatchOptions{}); err != nil || definition.Load() > 0 {
		t.Errorf("the definition: %d calls, %v", definition.Load(), err)
	}
}
