package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// own is a type that decodes itself.
type own struct{ metav1.ObjectMeta }

func (o *own) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &struct{ Metadata *metav1.ObjectMeta }{&o.ObjectMeta})
}

func TestDecodableObjectsAreDecodedLater(t *testing.T) {
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		s, want := pods(t, enc, 40, store.Options{})
		records := make([]*store.Record, len(want))
		for i, p := range want {
			records[i], _ = s.Get(store.Key{Namespace: p.Namespace, Name: p.Name})
		}
		types := []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[metav1.PartialObjectMetadata]()}
		if enc == source.JSON {
			types = append(types, reflect.TypeFor[unstructured.Unstructured]())
		}
		for _, typ := range types {
			if enc == source.Protobuf { // whose tables are trusted only after several correct results
				for _, r := range records[:16] {
					if _, err := r.As(typ); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 2 { // the second round uses the remembered result
				for i, r := range records[16:] {
					if now, err := r.AsLater(typ); now != nil || err != nil {
						t.Fatalf("%v, %v, object %d: %v, %v", enc, typ, i, now, err)
					}
				}
			}
		}
		if n, _ := store.Hot(s); enc == source.JSON && n != 0 {
			t.Errorf("%d objects were decoded", n)
		}
		for i, r := range records[16:] {
			pod, err := store.As[corev1.Pod](r)
			if err != nil || pod.Spec.NodeName != want[16+i].Spec.NodeName {
				t.Fatalf("%v: %v, %v", enc, pod, err)
			}
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = records[20].AsLater(types[0]) }); n > 0 {
			t.Errorf("%v: %v allocations", enc, n)
		}
	}
}

func TestUndecodableObjectsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	configMap, generic := reflect.TypeFor[corev1.ConfigMap](), reflect.TypeFor[unstructured.Unstructured]()
	metadata := reflect.TypeFor[metav1.PartialObjectMetadata]()
	for name, tc := range map[string]struct {
		reason string
		more   string
		typ    reflect.Type
		now    bool // it fails at once
		bad    bool
	}{
		"wrong":        {"a list that is a string", `,"data":["a"]`, configMap, false, true},
		"metadata":     {"the wrong field is not read", `,"data":["a"]`, metadata, false, false},
		"unstructured": {"without a type no field is wrong", `,"data":["a"]`, generic, false, false},
		"too large":    {"a number that no float64 holds", `,"data":1e999`, generic, false, true},
		"large":        {"a number that is unusual", `,"data":1e9`, generic, true, false},
		"own":          {"a type that decodes itself", ``, reflect.TypeFor[own](), true, false},
		"kind":         {"another kind", ``, reflect.TypeFor[corev1.Secret](), false, true},
		"no struct":    {"not an object", ``, reflect.TypeFor[[]string](), false, true},
		"pointer":      {"a pointer to an object", ``, reflect.TypeFor[*corev1.ConfigMap](), false, true},
		"no type":      {"no type", ``, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := pods(t, source.JSON, 0, store.Options{})
			s = newStore(t, store.Options{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Scheme: s.Options().Scheme})
			x := obj("a", "u1", 5)
			x.more = tc.more
			list(t, s.Sink(""), 9, x)
			r, _ := s.Get(x.key())
			for range 2 {
				now, err := r.AsLater(tc.typ)
				var bad *store.DecodeError
				if (now != nil) != tc.now || errors.As(err, &bad) != tc.bad {
					t.Fatalf("%s: %v, %v", tc.reason, now, err)
				}
				if then, err := r.As(tc.typ); (err != nil) != tc.bad || tc.now && then != now {
					t.Fatalf("%s, later: %v, %v", tc.reason, then, err)
				}
				s.Flush() // the packed record gives the same results
			}
		})
	}
	if _, err := (*store.Record)(nil).AsLater(reflect.TypeFor[corev1.Pod]()); err == nil {
		t.Error("there is no record, and no error")
	}
}

// User code may refuse any object, so it is run before an object counts as decodable. A store of metadata decodes
// nothing else.
func TestContentMayRefuseObjects(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		content store.Content
		want    error
	}{
		"transform": {store.Content{Transform: func(o any) (any, error) { return o, refused }}, refused},
		"metadata":  {store.Content{Metadata: true}, store.ErrMetadataOnly},
		"panic":     {store.Content{Transform: func(any) (any, error) { panic(refused) }}, nil},
	} {
		s := newStore(t, store.Options{Content: tc.content})
		list(t, s.Sink(""), 9, obj("a", "u1", 5))
		r, _ := s.Get(store.Key{Namespace: "ns", Name: "a"})
		now, err := r.AsLater(reflect.TypeFor[corev1.ConfigMap]())
		if now != nil || err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v", name, now, err)
		}
	}
	s := newStore(t, store.Options{Content: store.Content{Metadata: true}})
	list(t, s.Sink(""), 9, obj("a", "u1", 5))
	r, _ := s.Get(store.Key{Namespace: "ns", Name: "a"})
	if now, err := r.AsLater(reflect.TypeFor[metav1.PartialObjectMetadata]()); now != nil || err != nil {
		t.Errorf("metadata: %v, %v", now, err)
	}
}

// A record remembers the results of a few types only, and decodes further types all the same.
func TestManyTypesAreDecodedLater(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	list(t, s.Sink(""), 9, obj("a", "u1", 5))
	r, _ := s.Get(store.Key{Namespace: "ns", Name: "a"})
	for range 2 {
		for n := range 40 {
			typ := reflect.StructOf([]reflect.StructField{{Name: fmt.Sprint("A", n), Type: reflect.TypeFor[int]()}})
			if now, err := r.AsLater(typ); now != nil || err != nil {
				t.Fatalf("%d: %v, %v", n, now, err)
			}
		}
	}
}

// The results for types take no memory of their own. There are as many records as objects.
func TestSizeOfRecord(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(store.Record{}); n > 96 {
		t.Errorf("a record has %d bytes", n)
	}
}
