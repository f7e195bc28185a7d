package apiserver_test

import (
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestChange has many count up one number: none is lost.
func TestChange(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	widgets := apiserver.Widgets()
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widgets.GVK())
	w.SetNamespace("a")
	w.SetName("w")
	if _, err := s.Put(w); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				if _, err := s.Change(widgets.GVR(), "a", "w", func(u *unstructured.Unstructured) {
					n, _ := strconv.Atoi(u.GetAnnotations()["n"])
					u.SetAnnotations(map[string]string{"n": strconv.Itoa(n + 1)})
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := s.Object(widgets.GVR(), "a", "w")
	if err != nil || got.GetAnnotations()["n"] != "200" {
		t.Errorf("got %v, %v", got.GetAnnotations(), err)
	}
	if _, err := s.Change(widgets.GVR(), "a", "none", func(*unstructured.Unstructured) {}); !apierrors.IsNotFound(err) {
		t.Errorf("of none: %v", err)
	}
}
