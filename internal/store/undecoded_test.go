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

// TestUndecoded: an object that is kept, and cannot be decoded as what it is read as, is counted and named until
// another version comes, once however many read it; not where the reader is at fault.
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
				t.Errorf("it is told as %+v", q)
			}
		}
		if got != want || names != named {
			t.Errorf("counted %d, named %q, want %d, %q", got, names, want, named)
		}
	}
	put("1", `"poison"`)
	if _, err := store.Of[metav1.PartialObjectMetadata](s).Get(k); err != nil {
		t.Errorf("who reads the metadata: %v", err)
	}
	if _, err := store.Of[corev1.Pod](s).Get(k); err == nil {
		t.Error("it is read as a Pod")
	}
	count(0, "")
	for range 3 {
		if _, err := store.Of[corev1.ConfigMap](s).Get(k); err == nil {
			t.Fatal("poison is read")
		}
	}
	rec, _ := s.Get(k)
	if err := rec.DecodeInto(&corev1.ConfigMap{}); err == nil {
		t.Error("poison is read into one's own")
	}
	count(1, "a/bad@1")
	put("2", `{"fine":"yes"}`)
	count(1, "")
	if _, err := store.Of[corev1.ConfigMap](s).Get(k); err != nil {
		t.Error(err)
	}
	put("3", `["worse"]`)
	if rec, _ = s.Get(k); rec.DecodeInto(&corev1.ConfigMap{}) == nil {
		t.Error("poison is read into one's own")
	}
	count(2, "a/bad@3")
}
