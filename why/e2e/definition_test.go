package e2e_test

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// gateways installs a definition with one object of the stored version. If converted is set, its conversion webhook is
// unreachable.
func (w *world) gateways(converted bool) dynamic.Interface {
	w.Helper()
	c, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	yes := true
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes},
			},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "gateways." + testbed.GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: testbed.GroupVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "gateways", Singular: "gateway", Kind: "Gateway", ListKind: "GatewayList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", !converted)},
		},
	}
	stored := "v1"
	if converted {
		stored = "v2"
		crd.Spec.Versions = append(crd.Spec.Versions, version(stored, true))
		url := "https://127.0.0.1:1/convert"
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	}
	clustertest.InstallCRDs(w.T, w.cfg, clustertest.CRDObjects(crd))
	gvr := testbed.Gateways
	gvr.Version = stored
	if _, err := c.Resource(gvr).Namespace(w.ns).Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": testbed.GroupVersion.Group + "/" + stored, "kind": "Gateway",
		"metadata": map[string]any{"name": "x"},
	}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return c
}

// ofGateways runs a controller of gateways.
func (w *world) ofGateways() *fairlead.Runtime {
	rt := fairlead.New(w.cfg, fairlead.WithScheme(testbed.Scheme()))
	type gateways = reconcile.Func[testbed.Gateway]
	reconcile.New(rt, "gateways", gateways(func(context.Context, *testbed.Gateway) (reconcile.Result, error) {
		return reconcile.Done, nil
	}), here(w), reconcile.WithoutEvents())
	return w.run(rt)
}

// TestDefinitionGone: the definition of the kind, and with it all objects, is deleted while the program runs.
func TestDefinitionGone(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	w := at(t, c.Config(), clustertest.Namespace(t, c.Config()))
	api := w.gateways(false)
	rt := w.ofGateways()
	x := why.Object{Kind: "Gateway", Namespace: w.ns, Name: "x"}
	w.expectOf(rt, x, why.Ended, nil)
	crds := api.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	if err := crds.Delete(t.Context(), "gateways."+testbed.GroupVersion.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	answer := w.expectOf(rt, x, why.SourceStale, map[string]string{"reason": "NotFound", "resource": "gateways"}).Causes[0]
	if !strings.Contains(answer.Advice, "Install its CustomResourceDefinition") {
		t.Errorf("%+v", answer)
	}
}

// TestConversionDown: objects must be converted to the version that the program reads, and the webhook is down.
func TestConversionDown(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	w := at(t, c.Config(), clustertest.Namespace(t, c.Config()))
	w.gateways(true)
	rt := w.ofGateways()
	answer := w.expectOf(rt, why.Object{Kind: "Gateway", Namespace: w.ns, Name: "x"}, why.SourceStale,
		map[string]string{"error": "conversion webhook"}).Causes[0]
	if strings.Contains(answer.Message, "does not answer") || !strings.Contains(answer.Advice, "conversion") {
		t.Errorf("%+v", answer)
	}
}
