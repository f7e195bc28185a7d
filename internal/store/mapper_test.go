package store_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A cache with only a configuration knows the types of client-go and asks the server for resources, as a client does.
func TestCacheWithoutMapperAndScheme(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := store.NewCache(store.CacheOptions{Config: s.Config()})
	if err != nil {
		t.Fatal(err)
	}
	h, err := store.AcquireFor[corev1.ConfigMap](c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if o := h.Options(); o.Resource != corev1.SchemeGroupVersion.WithResource("configmaps") || !o.Namespaced {
		t.Errorf("the store has %+v", o)
	}
	for kind, want := range map[string]bool{"ConfigMap": true, "Nonsense": false} {
		if _, err := c.Acquire(corev1.SchemeGroupVersion.WithKind(kind)); want != (err == nil) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
