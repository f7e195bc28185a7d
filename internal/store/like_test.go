package store_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestTwoVersionsShare: a version that is decoded beside another one equals the version decoded alone. Both share their
// unchanged parts, unless mutations are detected: a report must name the object that was changed.
func TestTwoVersionsShare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		enc   source.Encoding
		typ   reflect.Type
		opt   store.Options
		apart bool // the other version is of another store
		share bool
	}{
		"Protobuf":      {enc: source.Protobuf, typ: reflect.TypeFor[corev1.Pod](), share: true},
		"Unstructured":  {enc: source.JSON, typ: reflect.TypeFor[unstructured.Unstructured](), share: true},
		"TypedFromJSON": {enc: source.JSON, typ: reflect.TypeFor[corev1.Pod]()},
		"Apart":         {enc: source.Protobuf, typ: reflect.TypeFor[corev1.Pod](), apart: true},
		"Detecting": {
			enc: source.Protobuf, typ: reflect.TypeFor[corev1.Pod](), opt: store.Options{DetectMutation: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// the store trusts a type after it has decoded some objects both ways
			s, all := pods(t, tc.enc, 20, tc.opt)
			for r := range s.Snapshot().All() {
				if _, err := r.As(tc.typ); err != nil {
					t.Fatal(err)
				}
			}
			key := store.Key{Namespace: all[0].Namespace, Name: all[0].Name}
			prior, _ := s.Get(key)
			next := all[0].DeepCopy()
			next.ResourceVersion, next.Status.Message = "900000001", "another one"
			fresh, _ := pods(t, tc.enc, 0, tc.opt)
			for st, o := range map[*store.Store]*corev1.Pod{s: next, fresh: next} {
				if err := st.Sink("").Apply(source.Modified, encoded(t, tc.enc, o)); err != nil {
					t.Fatal(err)
				}
			}
			if tc.apart {
				prior, _ = fresh.Get(key)
			}
			alone, _ := fresh.Get(key)
			want, err := alone.As(tc.typ)
			if err != nil {
				t.Fatal(err)
			}
			is, _ := s.Get(key)
			got, err := is.AsLike(prior, tc.typ)
			if err != nil || !reflect.DeepEqual(want, got) {
				t.Fatalf("error %v; it differs from what is decoded alone:\n%s", err, cmp.Diff(want, got))
			}
			was, err := prior.As(tc.typ)
			if err != nil {
				t.Fatal(err)
			}
			if got := spec(got) == spec(was); got != tc.share {
				t.Errorf("they share their specs: %t, want %t", got, tc.share)
			}
			if again, err := is.As(tc.typ); err != nil || again != got {
				t.Errorf("the object is decoded again, error %v", err)
			}
		})
	}
}

// TestRelativesShare: a pod equals the pod decoded alone, and shares equal parts with another pod of its workload. It
// does not share them if mutations are detected or allowed, or if the object is the reader's own.
func TestRelativesShare(t *testing.T) {
	t.Parallel()
	same := func(o any) (any, error) { return o, nil }
	for name, tc := range map[string]struct {
		opt   store.Options
		own   bool
		share bool
	}{
		"Shared":      {share: true},
		"Own":         {own: true},
		"Detecting":   {opt: store.Options{DetectMutation: true}},
		"Transformed": {opt: store.Options{Content: store.Content{Transform: same}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, all := pods(t, source.Protobuf, 20, tc.opt) // the store trusts a type after some objects
			for r := range s.Snapshot().All() {
				if _, err := store.As[corev1.Pod](r); err != nil {
					t.Fatal(err)
				}
			}
			add := func(o *corev1.Pod) *corev1.Pod {
				if err := s.Sink("").Apply(source.Added, encoded(t, source.Protobuf, o)); err != nil {
					t.Fatal(err)
				}
				r, _ := s.Get(store.Key{Namespace: o.Namespace, Name: o.Name})
				got := &corev1.Pod{}
				var err error
				if tc.own {
					err = r.DecodeInto(got)
				} else {
					got, err = store.As[corev1.Pod](r)
				}
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			prior := all[0].DeepCopy()
			prior.Name, prior.UID, prior.ResourceVersion = "prior", "prior", "900000001"
			next := prior.DeepCopy()
			next.Name, next.UID, next.ResourceVersion = "next", "next", "900000002"
			next.Spec.Containers[0].Image = "another"
			next.Spec.Containers = append(next.Spec.Containers, corev1.Container{Name: "more"})
			first, got := add(prior), add(next)
			want := &corev1.Pod{}
			if raw, err := next.Marshal(); err != nil || want.Unmarshal(raw) != nil {
				t.Fatal("cannot encode the pod")
			}
			want.TypeMeta = got.TypeMeta
			want.ManagedFields = nil // the store drops them
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("it differs from the pod decoded alone:\n%s", diff)
			}
			a, b := &first.Spec.Containers[0].Env[0], &got.Spec.Containers[0].Env[0]
			if (a == b) != tc.share {
				t.Errorf("they share a part: %t, want %t", a == b, tc.share)
			}
		})
	}
}

// TestUnstructuredObjectsShareParts: two decoded pods of one workload share an equal part, however large it is. They do
// not share it if mutations are detected or allowed, or if the objects are the reader's own.
func TestUnstructuredObjectsShareParts(t *testing.T) {
	t.Parallel()
	same := func(o any) (any, error) { return o, nil }
	for name, tc := range map[string]struct {
		opt   store.Options
		own   bool
		share bool
	}{
		"Shared":      {share: true},
		"Own":         {own: true},
		"Detecting":   {opt: store.Options{DetectMutation: true}},
		"Transformed": {opt: store.Options{Content: store.Content{Transform: same}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := pods(t, source.JSON, 0, tc.opt)
			var all []*unstructured.Unstructured
			for i := range 2 {
				o := object(fmt.Appendf(nil, `{"metadata":{"name":"n%d","uid":"u%d","resourceVersion":"%d"},`+
					`"spec":{"nodeName":"node-%d","tolerations":[{"key":"%0500d","operator":"Exists"}]}}`,
					i, i, 900000001+i, i, 0))
				if err := s.Sink("").Apply(source.Added, o); err != nil {
					t.Fatal(err)
				}
				r, _ := s.Get(store.Key{Name: fmt.Sprint("n", i)})
				u := &unstructured.Unstructured{}
				var err error
				if tc.own {
					err = r.DecodeInto(u)
				} else {
					u, err = store.As[unstructured.Unstructured](r)
				}
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, u)
			}
			at := func(u *unstructured.Unstructured) uintptr {
				return reflect.ValueOf(u.Object["spec"].(map[string]any)["tolerations"]).Pointer()
			}
			if got := at(all[0]) == at(all[1]); got != tc.share {
				t.Errorf("they share a part: %t, want %t", got, tc.share)
			}
		})
	}
}

// spec returns the address of the containers, or of the whole spec, of a pod.
func spec(o any) uintptr {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return reflect.ValueOf(u.Object["spec"]).Pointer()
	}
	return reflect.ValueOf(o.(*corev1.Pod).Spec.Containers).Pointer()
}
