package store_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A reader with a reflect.Type and a reader with a type parameter share one decoded object, in either order.
func TestRecordAsSharesWithAs(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		for _, hot := range []int64{0, -1} {
			s, want := pods(t, enc, 2, store.Options{HotBytes: hot})
			r, _ := s.Get(store.Key{Namespace: want[0].Namespace, Name: want[0].Name})
			byType, err := r.As(reflect.TypeFor[corev1.Pod]())
			if err != nil {
				t.Fatal(err)
			}
			if pod, err := store.As[corev1.Pod](r); err != nil || any(pod) != byType {
				t.Errorf("%v, hot %d: two objects of one type, error %v", enc, hot, err)
			}
			meta, err := store.As[metav1.PartialObjectMetadata](r)
			if err != nil {
				t.Fatal(err)
			}
			if o, err := r.As(reflect.TypeFor[metav1.PartialObjectMetadata]()); err != nil || o != any(meta) {
				t.Errorf("%v, hot %d: two metadata, error %v", enc, hot, err)
			}
			u, err := r.As(reflect.TypeFor[unstructured.Unstructured]())
			if err != nil || u.(*unstructured.Unstructured).GetName() != want[0].Name {
				t.Errorf("%v, hot %d: unstructured: %v, %v", enc, hot, u, err)
			}
			if !r.Shares(byType) || !r.Shares(meta) || !r.Shares(u) || r.Shares(want[0]) {
				t.Errorf("%v, hot %d: the shared object is not found", enc, hot)
			}
		}
	}
}

func TestRecordAsIsDecodedOnce(t *testing.T) {
	t.Parallel()
	s, want := pods(t, source.Protobuf, 1, store.Options{HotBytes: -1})
	r, _ := s.Get(store.Key{Namespace: want[0].Namespace, Name: want[0].Name})
	got := make([]any, 16)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			if i%2 == 0 {
				got[i], _ = r.As(reflect.TypeFor[corev1.Pod]())
				return
			}
			pod, _ := store.As[corev1.Pod](r)
			got[i] = pod
		})
	}
	wg.Wait()
	for _, o := range got {
		if o != got[0] || o == nil {
			t.Fatal("readers at the same time got different objects")
		}
	}
}

func TestRecordAsRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	s, want := pods(t, source.JSON, 1, store.Options{})
	r, _ := s.Get(store.Key{Namespace: want[0].Namespace, Name: want[0].Name})
	for _, test := range []struct {
		reason string
		r      *store.Record
		t      reflect.Type
	}{
		{"there is no type", r, nil},
		{"a pointer is no object", r, reflect.TypeFor[*corev1.Pod]()},
		{"an interface is no object", r, reflect.TypeFor[metav1.Object]()},
		{"another kind", r, reflect.TypeFor[corev1.Node]()},
		{"no record", nil, reflect.TypeFor[corev1.Pod]()},
	} {
		o, err := test.r.As(test.t)
		var decode *store.DecodeError
		if o != nil || !errors.As(err, &decode) || decode.Error() == "" {
			t.Errorf("%s: got %v, %v", test.reason, o, err)
		}
	}
}

func TestHotRecordAsDoesNotAllocate(t *testing.T) {
	s, want := pods(t, source.JSON, 1, store.Options{})
	r, _ := s.Get(store.Key{Namespace: want[0].Namespace, Name: want[0].Name})
	typ := reflect.TypeFor[corev1.Pod]()
	if _, err := r.As(typ); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.As(typ) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
