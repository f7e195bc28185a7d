package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhileTheProgramStarts: while a program starts, the answer is neither that the object is done nor that no
// controller selects it.
func TestWhileTheProgramStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", fn(func(context.Context, *configMap) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no route"))
	}), here(w), reconcile.WithoutEvents())
	x := why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: "x"}
	ran := false
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		a, err := rt.Why(ctx, x)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Causes) == 0 || a.Causes[0].Type == why.Ended || a.Causes[0].Type == why.NotSelected {
			t.Fatalf("while the program starts: %+v", a)
		}
		if a.Causes[0].Type == why.BackOff {
			return
		}
		if !ran {
			w.run(rt)
			ran = true
		}
		if ctx.Err() != nil {
			t.Fatalf("the reconciliation never fails: %+v", a)
		}
	}
}

// waiting runs a fiber for each ConfigMap. It waits for the end of the ConfigMap that the object names, or for Pod web.
func (w *world) waiting() *fairlead.Runtime {
	return steps(flow.Step("wait", func(_ context.Context, f fiberOf) flow.Next {
		c, _ := flow.Use[*client.Client](f)
		if other := f.Packet.Data["for"]; other != "" {
			return f.Await(client.Gone[configMap](c, client.Key{Namespace: f.Packet.Namespace, Name: other}))
		}
		return f.Await(client.Condition[corev1.Pod](c, client.Key{Namespace: f.Packet.Namespace, Name: "web"}, "Ready"))
	}))(w)
}

func waitsFor(other string) func(*configMap) {
	return func(m *configMap) { m.Data = map[string]string{"for": other} }
}

// TestWaits: objects wait for each other, in a row or in a ring.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("a", waitsFor("b"))
	w.put("b", waitsFor("c"))
	w.put("c")
	w.put("x", waitsFor("y"))
	w.put("y", waitsFor("x"))
	rt := w.waiting()
	parked := judge.Case{
		Want: why.Parked, Message: "waits for the end of ConfigMap", Then: []why.Type{why.Parked, why.Parked},
	}
	w.judge(rt, "c", judge.Case{Want: why.Parked, Message: "Pod"}) // the others wait for c, and may park before it
	got := w.judge(rt, "a", parked)
	if last := got.Causes[len(got.Causes)-1]; last.About == nil || last.About.Kind != "Pod" || last.Depth != 2 {
		t.Errorf("the end of the row is missing: %+v", got.Causes)
	}
	parked.Then = parked.Then[:1]
	w.judge(rt, "y", parked)
	got = w.judge(rt, "x", parked)
	if len(got.Causes) != 2 || got.Causes[1].About == nil || got.Causes[1].About.Name != "x" {
		t.Errorf("want each object of the ring once: %+v", got.Causes)
	}
	w.remove("y")
	w.expect(rt, "x", why.Ended, nil)
}

// TestKinds: a kind has the names that kubectl accepts.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := does(fails(errors.New("no route")))(w)
	w.expect(rt, "x", why.BackOff, nil)
	for _, kind := range []string{
		"cm", "CM", "configmap", "ConfigMaps", "configmap.v1", "ConfigMap.v1", "configmaps.v1.", "ConfigMap.",
	} {
		if a, err := rt.Why(t.Context(), why.Object{Kind: kind, Namespace: w.ns, Name: "x"}); err != nil ||
			a.Kind != "ConfigMap" || len(a.Causes) != 1 || a.Causes[0].Type != why.BackOff {
			t.Errorf("%s: %+v, %v", kind, a, err)
		}
	}
	if _, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), "system:basic-user", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		"clusterrole":                               "ClusterRole",
		"clusterroles.rbac.authorization.k8s.io":    "ClusterRole",
		"clusterroles.v1.rbac.authorization.k8s.io": "ClusterRole",
		"ClusterRole.rbac.authorization.k8s.io/v1":  "ClusterRole",
		"configmaps.apps":                           "",
		"v1":                                        "",
		"configmaps.v7.nobody.example.com":          "",
	} {
		a, err := rt.Why(t.Context(), why.Object{Kind: kind, Namespace: w.ns, Name: "system:basic-user"})
		if (err == nil) != (want != "") || a.Kind != want || want != "" && (a.Namespace != "" ||
			len(a.Causes) != 1 || a.Causes[0].Type != why.NotSelected || a.Causes[0].Evidence["resource"] == "") {
			t.Errorf("%s: %+v, %v", kind, a, err)
		}
	}
}

// TestTwoGroups: two groups have a kind of the same name. The existing object decides which kind is meant.
func TestTwoGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	rt := fairlead.New(w.cfg)
	var groups []schema.GroupVersion
	for _, name := range []string{"a", "b"} {
		gv := schema.GroupVersion{Group: name + "." + w.ns + ".example.com", Version: "v1"}
		clustertest.InstallCRDs(t, w.cfg, clustertest.CRDObjects(definition(gv, "Widget")))
		groups = append(groups, gv)
		type widget = reconcile.Func[unstructured.Unstructured]
		reconcile.New(rt, name, widget(func(context.Context, *unstructured.Unstructured) (reconcile.Result, error) {
			return reconcile.Retry(errors.New("no " + name))
		}), reconcile.Primary(reconcile.Kind(gv.WithKind("Widget")), reconcile.From(cache.Namespaces(w.ns))),
			reconcile.WithoutEvents())
	}
	w.run(rt)
	for i, gv := range groups {
		name := string("xy"[i])
		all := api.Resource(gv.WithResource("widgets")).Namespace(w.ns)
		if _, err := all.Create(t.Context(), &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": gv.String(), "kind": "Widget", "metadata": map[string]any{"name": name},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.expectOf(rt, why.Object{Kind: "widget", Namespace: w.ns, Name: name}, why.BackOff,
			map[string]string{"error": "no " + gv.Group[:1]})
		w.expectOf(rt, why.Object{Kind: "widgets." + gv.Group, Namespace: w.ns, Name: name}, why.BackOff, nil)
	}
	other := why.Object{Kind: "Widget." + groups[0].Group, Namespace: w.ns, Name: "y"}
	if a, err := rt.Why(t.Context(), other); !errors.Is(err, why.ErrNotFound) {
		t.Errorf("the other group: %+v, %v", a, err)
	}
}

// TestCoreAndAnother: the core group, whose name is empty, and another group have a kind of the same name. A question
// about the core kind gets no causes of the other one.
func TestCoreAndAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api, err := dynamic.NewForConfig(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	gv := schema.GroupVersion{Group: w.ns + ".example.com", Version: "v1"}
	clustertest.InstallCRDs(t, w.cfg, clustertest.CRDObjects(definition(gv, "LimitRange")))
	rt := fairlead.New(w.cfg)
	type core = reconcile.Func[corev1.LimitRange]
	reconcile.New(rt, "core", core(func(context.Context, *corev1.LimitRange) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no core"))
	}), reconcile.Primary(reconcile.From(cache.Namespaces(w.ns))), reconcile.WithoutEvents())
	type other = reconcile.Func[unstructured.Unstructured]
	reconcile.New(rt, "other", other(func(context.Context, *unstructured.Unstructured) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no other"))
	}), reconcile.Primary(reconcile.Kind(gv.WithKind("LimitRange")), reconcile.From(cache.Namespaces(w.ns))),
		reconcile.WithoutEvents())
	w.run(rt)
	create := func(gv schema.GroupVersion) {
		t.Helper()
		all := api.Resource(gv.WithResource("limitranges")).Namespace(w.ns)
		if _, err := all.Create(t.Context(), &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": gv.String(), "kind": "LimitRange", "metadata": map[string]any{"name": "x"},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	named := func(kind string) why.Object { return why.Object{Kind: kind, Namespace: w.ns, Name: "x"} }
	create(gv)
	w.expectOf(rt, named("LimitRange"), why.BackOff, map[string]string{"error": "no other"})
	for _, kind := range []string{"LimitRange.v1", "limitranges.v1", "limitrange.v1."} {
		if a, err := rt.Why(t.Context(), named(kind)); !errors.Is(err, why.ErrNotFound) {
			t.Errorf("%s without an object: %+v, %v", kind, a, err)
		}
		if r, of, err := rt.ResourceOf(named(kind)); err != nil ||
			r != corev1.SchemeGroupVersion.WithResource("limitranges") ||
			of.Kind != "LimitRange" || of.Group != "" {
			t.Errorf("%s is %v, %v, %v", kind, r, of, err)
		}
	}
	create(corev1.SchemeGroupVersion)
	for kind, controller := range map[string]string{
		"LimitRange.v1": "core", "limitranges.v1": "core", "LimitRange." + gv.Group: "other",
	} {
		a := w.expectOf(rt, named(kind), why.BackOff, map[string]string{"error": "no " + controller})
		if i := slices.IndexFunc(a.Causes, func(c why.Cause) bool { return c.Evidence["controller"] != controller }); i >= 0 {
			t.Errorf("the answer about %s has a cause of another kind: %+v", kind, a.Causes[i])
		}
	}
}

// definition returns the definition of a kind that accepts all content.
func definition(gv schema.GroupVersion, kind string) *apiextensionsv1.CustomResourceDefinition {
	one := strings.ToLower(kind)
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: one + "s." + gv.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gv.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: one + "s", Singular: one, Kind: kind, ListKind: kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gv.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: new(true),
					},
				},
			}},
		},
	}
}

// TestClusterScoped asks for a cluster-scoped object with a namespace.
func TestClusterScoped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := fairlead.New(w.cfg)
	type namespace = reconcile.Func[corev1.Namespace]
	reconcile.New(rt, "namespaces", namespace(func(context.Context, *corev1.Namespace) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no quota"))
	}), reconcile.Primary(reconcile.From(cache.Fields("metadata.name="+w.ns))), reconcile.WithoutEvents())
	w.run(rt)
	asked := why.Object{Kind: "ns", Namespace: "default", Name: w.ns}
	a := w.expectOf(rt, asked, why.BackOff, map[string]string{"error": "no quota"})
	if a.Namespace != "" || a.Kind != "Namespace" {
		t.Errorf("%+v", a)
	}
	w.expectOf(rt, why.Object{Kind: "ns", Name: "default"}, why.NotSelected, map[string]string{"fields": w.ns})
}

// TestForbiddenInAnotherNamespace: a program may not watch one of its two namespaces. Objects in the other one have no
// cause for that.
func TestForbiddenInAnotherNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := at(t, w.cfg, env.Namespace(t))
	w.put("x")
	other.put("x")
	rt := fairlead.New(w.user())
	reconcile.New(rt, "maps", well, reconcile.WithoutEvents(),
		reconcile.Primary(reconcile.From(cache.Namespaces(w.ns, other.ns))))
	w.run(rt)
	w.judge(rt, "x", judge.Case{Want: why.Ended})
	other.judge(rt, "x", judge.Case{
		Want: why.SourceStale, Evidence: []string{"reason=Forbidden", "namespace=" + other.ns}, Advice: "rule",
	})
}

// TestUnremovable: a program may clean up, but not remove its finalizer.
func TestUnremovable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg = w.user()
	w.put("x", kept("fairlead.io/maps"))
	rt := w.program(cleaner{fn: well})
	w.remove("x")
	w.judge(rt, "x", judge.Case{
		Want:     why.Forbidden,
		Evidence: []string{"verb=patch", "resource=configmaps", "finalizer=fairlead.io/maps"}, Advice: "rule",
	})
}

// TestForeground: an object was deleted in the foreground, and no garbage collector deletes its dependents.
func TestForeground(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.put("x")
	w.put("kid", func(m *configMap) {
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: x.UID, BlockOwnerDeletion: new(true),
		}}
	})
	rt := w.program(well)
	w.expect(rt, "x", why.Ended, nil)
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(t.Context(), "x", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	}); err != nil {
		t.Fatal(err)
	}
	w.judge(rt, "x", judge.Case{
		Want: why.ForeignFinalizer, Evidence: []string{"finalizers=foregroundDeletion"}, Advice: "dependents",
	})
}

// TestFailureEnds: a terminal failure is retried when the object is changed or replaced. Then the answer does not
// mention the failure any more. Another controller of the kind adds no cause beside one that fails.
func TestFailureEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := func(m *configMap) { m.Data = map[string]string{"size": "none"} }
	w.put("x", bad)
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "fine", well, here(w), reconcile.WithoutEvents())
	reconcile.New(rt, "maps", fn(func(_ context.Context, m *configMap) (reconcile.Result, error) {
		if m.Data["size"] == "none" {
			return reconcile.Retry(reconcile.AsTerminal(errors.New("no such size")))
		}
		return reconcile.Done, nil
	}), here(w), reconcile.WithoutEvents())
	w.run(rt)
	failed := judge.Case{
		Want:     why.BackOff,
		Evidence: []string{"error=no such size", "controller=maps", "class="}, Until: -1, Message: "until its spec",
	}
	for _, mend := range []func(){
		func() { w.change("x", func(m *configMap) { m.Data = nil }) },
		func() { w.remove("x"); w.put("x") },
	} {
		if a := w.judge(rt, "x", failed); len(a.Causes) > 1 && !a.Causes[1].Progress {
			t.Errorf("beside the failure: %+v", a)
		}
		mend()
		if a := w.expect(rt, "x", why.Ended, nil); strings.Contains(a.Causes[0].Message, "size") {
			t.Errorf("%+v", a)
		}
		w.change("x", bad)
	}
}
