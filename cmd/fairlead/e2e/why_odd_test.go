package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyOfOddities asks a starting controller, by all kinds of names, and as a user without rights. The questions are
// about a Webhook with a finalizer and about operations whose definition was deleted.
func TestWhyOfOddities(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	s := newSite(t, c.Config())
	s.webhook("kept", "/fine", nil)
	s.asks("missing", operations.Request{Webhooks: []string{"nowhere"}})
	token, stranger := s.reader("sees", "operations", "webhooks"), s.reader("stranger", "pods")
	p := patient{s, <-s.controller(s.kubeconfig).address, token}
	s.eventually("up", func() bool {
		a, code := p.why("operation/app/missing")
		if code != 0 || len(a.Causes) == 0 || a.Causes[0].Type == why.Ended || a.Causes[0].Type == why.NotSelected {
			t.Fatalf("while it starts: %d %+v", code, a)
		}
		return a.Causes[0].Type == why.WebhookMissing
	})
	for _, name := range []string{
		"op/app/missing", "Operations/app/missing", "operation.fairlead.io/app/missing",
		"operations.v1alpha1.fairlead.io/app/missing",
		"operations.fairlead.io/" + v1alpha1.OperationName("app", "missing"),
	} {
		if a := p.first(name, why.WebhookMissing); a.Kind != v1alpha1.KindOperation {
			t.Errorf("%s: %+v", name, a)
		}
	}
	args := []string{"why", "-n", s.namespace, "-o", "json", "--url", "http://" + p.address, "--token"}
	ask := func(token, object string) string {
		code, out, errs := fairlead(t, append(args, token, object)...)
		if code != exitFailure {
			t.Errorf("%s: exit code %d", object, code)
		}
		return out + errs
	}
	there, nowhere := ask(stranger, "op/app/missing"), ask(stranger, "op/app/nothing")
	if strings.ReplaceAll(there, "missing", "nothing") != nowhere || ask(token, "op/app/nothing") != nowhere {
		t.Errorf("existing and missing objects have different answers: %q, %q", there, nowhere)
	}
	_, out, _ := fairlead(t, append(args, token, "op/app/missing")...)
	var answer map[string]any
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	first := answer["causes"].([]any)[0].(map[string]any)
	for in, fields := range map[string][]string{
		"answer": {"kind", "namespace", "name", "stuck", "causes"},
		"cause":  {"type", "message", "since", "until", "evidence", "advice"},
	} {
		has := map[string]map[string]any{"answer": answer, "cause": first}[in]
		if slices.ContainsFunc(fields, func(f string) bool { _, ok := has[f]; return !ok }) {
			t.Errorf("the %s lacks a documented field: %v", in, has)
		}
	}

	api, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	hooks := api.Resource(v1alpha1.WebhooksResource).Namespace(s.namespace)
	finalizers := []byte(`{"metadata":{"finalizers":["example.com/keeper"]}}`)
	if _, err := hooks.Patch(s.ctx, "kept", types.MergePatchType, finalizers, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := hooks.Delete(s.ctx, "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.first("wh/kept", why.ForeignFinalizer, "finalizers=example.com/keeper")
	s.asks("kept", operations.Request{Webhooks: []string{"kept"}})
	p.first("op/app/kept", why.Ended, "reason=Succeeded") // it exists until its finalizer is removed

	crds := api.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	definition := v1alpha1.OperationsResource.GroupResource().String()
	if err := crds.Delete(s.ctx, definition, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a := p.first("op/app/missing", why.SourceStale, "resource=operations.fairlead.io")
	if !strings.Contains(a.Causes[0].Advice, "Install its CustomResourceDefinition") {
		t.Errorf("of a deleted definition: %+v", a)
	}
}
