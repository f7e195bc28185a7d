package watchtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// observed is a test that only records its failures.
type observed struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (o *observed) Cleanup(fn func()) { o.cleanups = append(o.cleanups, fn) }
func (o *observed) Error(args ...any) { o.failures = append(o.failures, fmt.Sprint(args...)) }

// TestWatchDetectsChangesOfSharedObjects changes an object, or a copy of it, between two reads.
func TestWatchDetectsChangesOfSharedObjects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		change func(*corev1.ConfigMap)
		want   []string
	}{
		{
			"a reader changes a shared object", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"changed": "yes"} },
			[]string{"a/x"},
		},
		{"a copy changes", func(cm *corev1.ConfigMap) { cm.DeepCopy().Data = map[string]string{"changed": "yes"} }, nil},
	} {
		server, err := apiserver.New(apiserver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		if _, err := server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}); err != nil {
			t.Fatal(err)
		}
		inner := &observed{TB: t}
		watched := watchtest.Watch(inner, server,
			source.Config{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
		<-watched.Store.Synced()
		view := store.Of[corev1.ConfigMap](watched.Store)
		for range 2 {
			cm, err := view.Get(store.Key{Namespace: "a", Name: "x"})
			if err != nil {
				t.Fatal(err)
			}
			tc.change(cm)
		}
		for _, fn := range inner.cleanups {
			fn()
		}
		var keys []string
		for _, failure := range inner.failures {
			key, _, _ := strings.Cut(failure, ":")
			keys = append(keys, key)
		}
		if d := cmp.Diff(tc.want, keys); d != "" {
			t.Errorf("%s: %v: %s", tc.reason, inner.failures, d)
		}
	}
}
