package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// Values assigned by the server are replaced wherever an object refers to them. A uid is replaced also within a text,
// an address only as a whole value.
func TestNormalizerAssigned(t *testing.T) {
	const uid = "00000000-0000-4000-8000-00000000001a"
	object := func(kind, name string, content map[string]any) *unstructured.Unstructured {
		content["apiVersion"], content["kind"] = "v1", kind
		content["metadata"] = map[string]any{"namespace": "default", "name": name, "uid": uid[:35] + name[:1]}
		return &unstructured.Unstructured{Object: content}
	}
	n := engine.NewNormalizer(nil)
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	n.Learn(claims, object("PersistentVolumeClaim", "a", map[string]any{}))
	n.Learn(schema.GroupResource{Resource: "pods"}, object("Pod", "b", map[string]any{}))
	n.Learn(schema.GroupResource{Resource: "pods"}, object("Pod", "b", map[string]any{
		"status": map[string]any{"podIP": "10.0.0.1"},
	}))
	got := n.Object(object("Thing", "c", map[string]any{
		"volume": "pvc-" + uid, "twice": uid + "/" + uid, "short": "pvc-1-2-3-4", "ip": "10.0.0.1", "other": "10.0.0.10",
	}))
	delete(got, "metadata")
	claim := "<uid of persistentvolumeclaims/default/a>"
	want := map[string]any{
		"apiVersion": "v1", "kind": "Thing", "volume": "pvc-" + claim, "twice": claim + "/" + claim, "short": "pvc-1-2-3-4",
		"ip": "<address of pods/default/b>", "other": "10.0.0.10",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The order of finalizers and owners has no meaning. Two controllers of one subject write theirs in any order.
func TestNormalizerSortsSets(t *testing.T) {
	object := func(finalizers, owners []any) map[string]any {
		return engine.NewNormalizer(nil).Object(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"finalizers": finalizers, "ownerReferences": owners},
			"spec":     map[string]any{"finalizers": finalizers},
		}})
	}
	a, b := map[string]any{"uid": "1"}, map[string]any{"uid": "2"}
	one, other := object([]any{"x", "y"}, []any{a, b}), object([]any{"y", "x"}, []any{b, a})
	if d := cmp.Diff(one["metadata"], other["metadata"]); d != "" {
		t.Error(d)
	}
	if cmp.Diff(one["spec"], other["spec"]) == "" {
		t.Error("other lists have lost their order")
	}
}

// Details that a real cluster chooses anew in each run do not matter: the name of the volume with a pod's token (which
// is also the key of a list), the certificates of the cluster, which controller bound a volume, and the replicas of a
// Deployment when it last scaled an old ReplicaSet.
func TestNormalizerOfRealCluster(t *testing.T) {
	state := func(suffix, ca string, claimed map[string]any) engine.State {
		n := engine.NewNormalizer(nil)
		volumes := []any{map[string]any{"name": "kube-api-access-" + suffix}, map[string]any{"name": "kube-api-access-data"}}
		pod := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a", "annotations": claimed}, "spec": map[string]any{"volumes": volumes},
		}}
		root := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "kube-root-ca.crt", "namespace": "default"}, "data": map[string]any{"ca.crt": ca},
		}}
		n.Learn(schema.GroupResource{Resource: "configmaps"}, root)
		bundle := &unstructured.Unstructured{Object: map[string]any{"caBundle": ca}}
		return engine.State{"pods/a": {n.Object(pod)}, "configmaps/ca": {n.Object(root), n.Object(bundle)}}
	}
	a := state("x7x2k", "first", map[string]any{})
	b := state("2wvtp", "second", map[string]any{
		"pv.kubernetes.io/bound-by-controller": "yes", "volume.kubernetes.io/storage-provisioner": "none",
		"deployment.kubernetes.io/desired-replicas": "2", "deployment.kubernetes.io/max-replicas": "3",
	})
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("two runs differ (-first +second):\n%s", d)
	}
	volumes := a["pods/a"][0]["spec"].(map[string]any)["volumes"].([]any)
	if got := volumes[1].(map[string]any)["name"]; got != "kube-api-access-data" {
		t.Errorf("a volume of the user has the name %s", got)
	}
}

// The annotation of the conflicting client is removed wherever a controller copied it.
func TestNormalizerTouched(t *testing.T) {
	touched := func(others ...string) map[string]any {
		m := map[string]any{engine.Touched: "1s"}
		for _, k := range others {
			m[k] = "x"
		}
		return map[string]any{"metadata": map[string]any{"annotations": m}}
	}
	got := engine.NewNormalizer(nil).Object(&unstructured.Unstructured{Object: map[string]any{
		"metadata": touched()["metadata"],
		"spec":     map[string]any{"alone": touched(), "with": touched("a")},
	}})
	want := map[string]any{
		"metadata": map[string]any{},
		"spec": map[string]any{
			"alone": map[string]any{"metadata": map[string]any{}},
			"with":  map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "x"}}},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Objects with generated names are compared with the most similar object, whatever their order.
func TestPairsOfGeneratedNames(t *testing.T) {
	pod := func(hash, role string) map[string]any { return map[string]any{"hash": hash, "role": role} }
	a := engine.State{"pods/p-*": {pod("1", "leader"), pod("2", "worker")}}
	b := engine.State{"pods/p-*": {pod("3", "worker"), pod("4", "leader")}}
	mask := engine.Mask{}
	mask.Add(a, b)
	if d := cmp.Diff(engine.Mask{"pods/p-* hash": true}, mask); d != "" {
		t.Error(d)
	}
	want := &engine.Want{End: a, Mask: mask}
	if !want.Equals(b) {
		t.Error("states with other hashes differ")
	}
	if want.Equals(engine.State{"pods/p-*": {pod("5", "worker"), pod("6", "worker")}}) {
		t.Error("a state without a leader equals one with a leader")
	}
}

// A random part of a name that the subject makes up is also known without the rest of the name, as in a label. A part
// that could be another text is not.
func TestPartsOfOwnNames(t *testing.T) {
	object := func(name, label string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"hash": label}}}
	}
	for _, tt := range []struct{ name, label, shown, want string }{
		{"web-x7x2k", "1234-x7x2k", "web-*", "1234-*"},
		{"web-bcdfg", "1234-bcdfg", "web-*", "1234-*"},
		{"cache-2000", "1234-2000", "cache-*", "1234-2000"},
		{"web", "1234", "web", "1234"},
	} {
		n := engine.NewNormalizer([]string{`\b(web-)[b-df-hj-np-tv-z2-9]{5}\b`, `\b(cache-)[0-9a-f]{4}\b`})
		u := &unstructured.Unstructured{Object: object(tt.name, tt.label)}
		n.Learn(schema.GroupResource{Resource: "pods"}, u)
		if d := cmp.Diff(object(tt.shown, tt.want), n.Object(u)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
