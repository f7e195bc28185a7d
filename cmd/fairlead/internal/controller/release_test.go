package controller

import (
	"errors"
	"os"
	"runtime/debug"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestCachesAreReleasedAfterError: if one kind cannot be watched, the kinds before it are released.
func TestCachesAreReleasedAfterError(t *testing.T) {
	t.Parallel()
	mapper := meta.NewDefaultRESTMapper(nil) // it does not know Secrets
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation), v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	from, err := cache.NewCache(cache.CacheOptions{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Mapper: mapper, Linger: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := acquireCaches(from, nil, false, cache.Namespaces())
	if err == nil || c != nil {
		t.Fatalf("got %v and the error %v, want the error about Secrets", c, err)
	}
	if left := from.Stores(schema.GroupVersionResource{}); len(left) > 0 {
		t.Errorf("%d stores are still in use after: %v", len(left), err)
	}
}

// TestCrashLogIsClosedAfterError: after an error, the directory of the crash log can be opened again.
func TestCrashLogIsClosedAfterError(t *testing.T) {
	t.Parallel()
	dir, refused := t.TempDir(), errors.New("refused")
	set := func(result error) func(*os.File, debug.CrashOptions) error {
		return func(*os.File, debug.CrashOptions) error { return result }
	}
	if crashes, err := openCrashLog(dir, set(refused)); !errors.Is(err, refused) || crashes != nil {
		t.Fatalf("got %v and %v, want no crash log and %v", crashes, err, refused)
	}
	crashes, err := openCrashLog(dir, set(nil))
	if err != nil {
		t.Fatalf("the crash log is still in use: %v", err)
	}
	if err := crashes.Close(); err != nil {
		t.Error(err)
	}
}
