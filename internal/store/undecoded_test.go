package store_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestUndecoded: an object that cannot be decoded is counted once and named until its next version, however many
// readers it has. A reader with a wrong type is not counted.
func TestUndecoded(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{
		Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaced: true, Scheme: scheme.Scheme,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	})
	sink, k := s.Sink(""), store.Key{Namespace: "a", Name: "bad"}
	put := func(version, data string) {
		t.Helper()
		if err := sink.Apply(source.Modified,
			object([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"a",`+
				`"name":"bad","uid":"u","resourceVersion":"`+version+`"},"data":`+data+`}`))); err != nil {
			t.Fatal(err)
		}
	}
	count := func(want int64, named string) {
		t.Helper()
		got, names := s.Stats().Quarantined, ""
		for _, q := range s.Undecoded() {
			names += q.Key() + "@" + q.Version
			if q.At.IsZero() || !strings.Contains(q.Err.Error(), "ConfigMap") {
				t.Errorf("it is reported as %+v", q)
			}
		}
		if got != want || names != named {
			t.Errorf("counted %d, named %q, want %d, %q", got, names, want, named)
		}
	}
	put("1", `"poison"`)
	if _, err := store.Of[metav1.PartialObjectMetadata](s).Get(k); err != nil {
		t.Errorf("a reader of the metadata: %v", err)
	}
	if _, err := store.Of[corev1.Pod](s).Get(k); err == nil {
		t.Error("the object is read as a Pod")
	}
	count(0, "")
	for range 3 {
		if _, err := store.Of[corev1.ConfigMap](s).Get(k); err == nil {
			t.Fatal("the undecodable object is read")
		}
	}
	rec, _ := s.Get(k)
	if err := rec.DecodeInto(&corev1.ConfigMap{}); err == nil {
		t.Error("the undecodable object is read into the caller's object")
	}
	count(1, "a/bad@1")
	put("2", `{"fine":"yes"}`)
	count(1, "")
	if _, err := store.Of[corev1.ConfigMap](s).Get(k); err != nil {
		t.Error(err)
	}
	put("3", `["worse"]`)
	if rec, _ = s.Get(k); rec.DecodeInto(&corev1.ConfigMap{}) == nil {
		t.Error("the undecodable object is read into the caller's object")
	}
	count(2, "a/bad@3")
}
