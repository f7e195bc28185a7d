package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": "Widget", "apiVersion": "example.fairlead.io/v1",
		"metadata": map[string]any{"namespace": "a", "name": name}, "spec": spec, "status": map[string]any{"phase": "given"},
	}}
}

func dynamicFor(t *testing.T, s *apiserver.Server) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(widgets).Namespace("a")
}

func TestGenerationAndStatus(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := dynamicFor(t, s)
	ctx := t.Context()
	w, err := c.Create(ctx, widget("w", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if w.GetGeneration() != 1 || w.Object["status"] != nil {
		t.Fatalf("created with generation %d and status %v", w.GetGeneration(), w.Object["status"])
	}
	w.Object["status"], w.Object["spec"] = map[string]any{"phase": "ready"}, map[string]any{"size": int64(99)}
	w, err = c.UpdateStatus(ctx, w, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"size": int64(1)}, w.Object["spec"]); diff != "" || w.GetGeneration() != 1 {
		t.Errorf("a status update changed more than status: generation %d, spec %s", w.GetGeneration(), diff)
	}
	w.Object["status"], w.Object["spec"] = map[string]any{"phase": "broken"}, map[string]any{"size": int64(2)}
	if w, err = c.Update(ctx, w, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"phase": "ready"}, w.Object["status"]); diff != "" || w.GetGeneration() != 2 {
		t.Errorf("an update changed status or did not count: generation %d, status %s", w.GetGeneration(), diff)
	}
	before := w.GetResourceVersion()
	w.SetLabels(map[string]string{"a": "b"})
	if w, err = c.Update(ctx, w, metav1.UpdateOptions{}); err != nil || w.GetGeneration() != 2 ||
		w.GetResourceVersion() == before {
		t.Errorf("labels: generation %d, version %s → %s: %v", w.GetGeneration(), before, w.GetResourceVersion(), err)
	}
	same, err := c.Update(ctx, w, metav1.UpdateOptions{})
	if err != nil || same.GetResourceVersion() != w.GetResourceVersion() ||
		s.Version(s.Revision()) != w.GetResourceVersion() {
		t.Errorf("an update that changes nothing made a revision: %s → %s, %v", w.GetResourceVersion(),
			same.GetResourceVersion(), err)
	}
}

func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	res := apiserver.Widgets()
	res.Validate = func(_ context.Context, obj, old *unstructured.Unstructured) error {
		if size, _, _ := unstructured.NestedInt64(obj.Object, "spec", "size"); size < 0 {
			return errors.New("spec.size must not be negative")
		}
		if old != nil && obj.GetLabels()["frozen"] != old.GetLabels()["frozen"] {
			return apierrors.NewForbidden(widgets.GroupResource(), obj.GetName(), errors.New("frozen"))
		}
		return nil
	}
	s := start(t, apiserver.Options{Resources: append(apiserver.DefaultResources()[:2], res)})
	c, ctx := dynamicFor(t, s), t.Context()
	w, err := c.Create(ctx, widget("w", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := func(fn func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o := w.DeepCopy()
		fn(o)
		return o
	}
	do := func(o *unstructured.Unstructured) error {
		_, err := c.Update(ctx, o, metav1.UpdateOptions{})
		return err
	}
	patch := func(pt types.PatchType, body string) error {
		_, err := c.Patch(ctx, "w", pt, []byte(body), metav1.PatchOptions{})
		return err
	}
	uid := types.UID("other")
	version := "1"
	_, exists := c.Create(ctx, widget("w", nil), metav1.CreateOptions{})
	_, negative := c.Create(ctx, widget("n", map[string]any{"size": int64(-1)}), metav1.CreateOptions{})
	_, missing := c.Update(ctx, widget("none", nil), metav1.UpdateOptions{})
	_, unnamed := c.Create(ctx, widget("", nil), metav1.CreateOptions{})
	tests := map[string]struct {
		reason string
		err    error
		is     func(error) bool
	}{
		"exists":     {"the name is taken", exists, apierrors.IsAlreadyExists},
		"no name":    {"neither name nor generateName", unnamed, apierrors.IsInvalid},
		"validation": {"the user's validation", negative, apierrors.IsInvalid},
		"own status": {
			"the user's validation with its own status",
			do(changed(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"frozen": "x"}) })),
			apierrors.IsForbidden,
		},
		"not there": {"an update of nothing", missing, apierrors.IsNotFound},
		"old version": {
			"optimistic locking",
			do(changed(func(o *unstructured.Unstructured) { o.SetResourceVersion("1") })), apierrors.IsConflict,
		},
		"no version": {
			"custom resources need one",
			do(changed(func(o *unstructured.Unstructured) { o.SetResourceVersion("") })), apierrors.IsInvalid,
		},
		"other uid": {
			"another object of that name is meant",
			do(changed(func(o *unstructured.Unstructured) { o.SetUID("x") })), apierrors.IsConflict,
		},
		"patch version": {
			"a patch may carry one too", patch(types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`),
			apierrors.IsConflict,
		},
		"patch test": {
			"a JSON patch whose test fails",
			patch(types.JSONPatchType, `[{"op":"test","path":"/spec/size","value":7}]`), apierrors.IsInvalid,
		},
		"patch garbage": {"no patch at all", patch(types.JSONPatchType, `{`), apierrors.IsBadRequest},
		"patch strategic": {
			"custom resources have no schema for it", patch(types.StrategicMergePatchType, `{}`),
			apierrors.IsUnsupportedMediaType,
		},
		"patch name": {
			"the name cannot change", patch(types.MergePatchType, `{"metadata":{"name":"v"}}`),
			apierrors.IsBadRequest,
		},
		"delete uid": {"precondition", c.Delete(ctx, "w",
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), apierrors.IsConflict},
		"delete version": {"precondition", c.Delete(ctx, "w",
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}), apierrors.IsConflict},
		"delete nothing": {"not there", c.Delete(ctx, "none", metav1.DeleteOptions{}), apierrors.IsNotFound},
	}
	for name, tc := range tests {
		if !tc.is(tc.err) {
			t.Errorf("%s (%s): %v", name, tc.reason, tc.err)
		}
	}
	if now, err := c.Get(ctx, "w", metav1.GetOptions{}); err != nil || !cmp.Equal(now.Object, w.Object) {
		t.Errorf("a refused write changed something: %v %s", err, cmp.Diff(w.Object, now.Object))
	}
	r := newRaw(t, s)
	for path, want := range map[string]int{
		configMapPath + "/x/exec": 404, "/api/v1/configmaps": 405, "/apis/none/v1/x": 404,
		"/api/v1/namespaces/a/configmaps/x": 405,
	} {
		if got, err := r.do(http.MethodPost, path, "application/json", "{}"); err != nil || got.Code != want {
			t.Errorf("POST %s: %d, want %d (%v)", path, got.Code, want, err)
		}
	}
	for contentType, want := range map[string]int{"application/cbor": 415, "application/json": 400} {
		if got, err := r.do(http.MethodPost, configMapPath, contentType, "{"); err != nil || got.Code != want {
			t.Errorf("POST %s: %d, want %d (%v)", contentType, got.Code, want, err)
		}
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c, ctx := typed(t, s).CoreV1().Pods("a"), t.Context()
	if _, err := c.Create(ctx, newPod("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		kind types.PatchType
		body string
		sub  []string
	}{
		{types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"second","image":"j"}]}}`, nil},
		{types.MergePatchType, `{"metadata":{"labels":{"app":null,"new":"1"}}}`, nil},
		{types.JSONPatchType, `[{"op":"replace","path":"/spec/containers/1/image","value":"k"}]`, nil},
		{types.MergePatchType, `{"status":{"phase":"Running"},"spec":{"nodeName":"ignored"}}`, []string{"status"}},
	} {
		if _, err := c.Patch(ctx, "p", p.kind, []byte(p.body), metav1.PatchOptions{}, p.sub...); err != nil {
			t.Fatalf("%s: %v", p.body, err)
		}
	}
	got, err := c.Get(ctx, "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, c := range got.Spec.Containers {
		images = append(images, c.Name+"="+c.Image)
	}
	if fmt.Sprintf("%v %v %s %s", images, got.Labels, got.Status.Phase,
		got.Spec.NodeName) != "[second=j c=k] map[new:1] Running n1" {
		t.Error(images, got.Labels, got.Status.Phase, got.Spec.NodeName)
	}
}

func TestServerSideApply(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c, ctx := typed(t, s).CoreV1().ConfigMaps("a"), t.Context()
	apply := func(manager string, force bool, data map[string]string) (*corev1.ConfigMap, error) {
		return c.Apply(ctx, corev1ac.ConfigMap("x", "a").WithData(data),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	one, err := apply("one", false, map[string]string{"a": "1", "b": "1"})
	if err != nil || len(one.ManagedFields) != 1 || one.UID == "" {
		t.Fatalf("apply creates: %v, %v", one, err)
	}
	if again, err := apply("one", false, map[string]string{"a": "1", "b": "1"}); err != nil ||
		again.ResourceVersion != one.ResourceVersion {
		t.Errorf("the same apply made version %s of %s: %v", again.ResourceVersion, one.ResourceVersion, err)
	}
	if _, err := apply("two", false, map[string]string{"a": "2"}); !apierrors.IsConflict(err) {
		t.Errorf("a field of another manager was taken without force: %v", err)
	}
	if got, err := apply("two", true, map[string]string{"a": "2"}); err != nil || got.Data["a"] != "2" {
		t.Errorf("force: %v, %v", got, err)
	}
	got, err := apply("one", false, map[string]string{})
	if diff := cmp.Diff(map[string]string{"a": "2"}, got.Data); diff != "" || err != nil {
		t.Errorf("what one gave up and nobody else owns must go, and nothing else: %s, %v", diff, err)
	}
	got.Data["c"] = "3"
	if got, err = c.Update(ctx, got, metav1.UpdateOptions{FieldManager: "three"}); err != nil {
		t.Fatal(err)
	}
	owners := map[string]metav1.ManagedFieldsOperationType{}
	for _, f := range got.ManagedFields {
		owners[f.Manager] = f.Operation
	}
	if owners["two"] != metav1.ManagedFieldsOperationApply || owners["three"] != metav1.ManagedFieldsOperationUpdate {
		t.Errorf("owners: %v", owners)
	}

	w := dynamicFor(t, s)
	spec := widget("w", map[string]any{"size": int64(1)})
	delete(spec.Object, "status")
	if _, err := w.Apply(ctx, "w", spec, metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	status := widget("w", nil)
	delete(status.Object, "spec")
	after, err := w.ApplyStatus(ctx, "w", status, metav1.ApplyOptions{FieldManager: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(after.Object, "status", "phase"); phase != "given" ||
		after.GetGeneration() != 1 ||
		after.Object["spec"] == nil || len(after.GetManagedFields()) != 2 {
		t.Errorf("apply to status: %v", after.Object)
	}
	if _, err := w.ApplyStatus(ctx, "none", status, metav1.ApplyOptions{FieldManager: "two"}); err == nil {
		t.Error("apply to the status of nothing")
	}
}

func TestDeletionWaits(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c, ctx := dynamicFor(t, s), t.Context()
	o := widget("w", nil)
	o.SetFinalizers([]string{"x/y"})
	if _, err := c.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch := newRaw(t, s).watch("/apis/example.fairlead.io/v1/namespaces/a/widgets?watch=true&resourceVersion=" +
		s.Version(s.Revision()))
	for range 2 { // the second changes nothing
		if err := c.Delete(ctx, "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Get(ctx, "w", metav1.GetOptions{})
	if err != nil || got.GetDeletionTimestamp() == nil || got.GetGeneration() != 2 {
		t.Fatalf("marked for deletion: %v, %v", got, err)
	}
	more := got.DeepCopy()
	more.SetFinalizers([]string{"x/y", "late/comer"})
	if _, err := c.Update(ctx, more, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a finalizer was added to an object that is being deleted: %v", err)
	}
	got.SetFinalizers(nil)
	if _, err := c.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the last finalizer is gone, the object is not: %v", err)
	}
	watch.expect("MODIFIED w@3", "DELETED w@4")

	pods := typed(t, s).CoreV1().Pods("a")
	if _, err := pods.Create(ctx, newPod("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := pods.Get(ctx, "p", metav1.GetOptions{})
	if err != nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 30 ||
		p.DeletionTimestamp == nil {
		t.Fatalf("a pod on a node is given time: %v, %v", p, err)
	}
	zero := int64(0)
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("grace period 0: %v", err)
	}
	for i := range 4 {
		put(t, s, fmt.Sprint("c", i), "1")
	}
	if err := typed(t, s).CoreV1().ConfigMaps("a").DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "metadata.name!=c2"}); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Objects(configMaps); err != nil || len(left) != 1 || left[0].GetName() != "c2" {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := s.Delete(ctx, configMaps, "a", "c2", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDryRunGenerateNameAndSecrets(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c, ctx := typed(t, s).CoreV1(), t.Context()
	dry := []string{metav1.DryRunAll}
	if _, err := c.ConfigMaps("a").Create(ctx, configMap("x", "1"), metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Object(configMaps, "a", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run was stored: %v", err)
	}
	names := map[string]bool{}
	for range 20 {
		cm := configMap("", "1")
		cm.GenerateName = "gen-"
		got, err := c.ConfigMaps("a").Create(ctx, cm, metav1.CreateOptions{})
		if err != nil || !strings.HasPrefix(got.Name, "gen-") || len(got.Name) != 9 {
			t.Fatalf("%v, %v", got, err)
		}
		names[got.Name] = true
	}
	if len(names) != 20 {
		t.Errorf("%d names of 20", len(names))
	}
	secret, err := c.Secrets("a").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"},
	}, metav1.CreateOptions{})
	if err != nil || string(secret.Data["k"]) != "v" || secret.StringData != nil {
		t.Errorf("%v, %v", secret, err)
	}
}

// TestConcurrentWritesAreSerial: patches without a version never conflict and never lose one another.
func TestConcurrentWritesAreSerial(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c, ctx := typed(t, s).CoreV1().ConfigMaps("a"), t.Context()
	put(t, s, "x", "1")
	var wg sync.WaitGroup
	const writers = 16
	for i := range writers {
		wg.Go(func() {
			body, err := json.Marshal(map[string]any{"data": map[string]string{fmt.Sprint("k", i): "v"}})
			if err != nil {
				t.Error(err)
			}
			if _, err := c.Patch(ctx, "x", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := c.Get(ctx, "x", metav1.GetOptions{})
	if err != nil || len(got.Data) != writers+1 || got.ResourceVersion != s.Version(uint64(2+writers)) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNames: servers that begin at other places generate other names.
func TestNames(t *testing.T) {
	t.Parallel()
	name := func(begin uint64) string {
		cm := configMap("", "1")
		cm.GenerateName = "gen-"
		c := typed(t, start(t, apiserver.Options{Names: begin})).CoreV1().ConfigMaps("a")
		got, err := c.Create(t.Context(), cm, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Name
	}
	if a, b, c := name(0), name(100), name(100); a == b || b != c {
		t.Errorf("the first names are %s at 0, and %s and %s at 100", a, b, c)
	}
}
