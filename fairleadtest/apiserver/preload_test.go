package apiserver_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// Objects that were loaded are written as others are: what carries a stale version, or another uid, gets a conflict and
// changes nothing, also after they were loaded again.
func TestPreloadedObjectsConflict(t *testing.T) {
	t.Parallel()
	for _, form := range []string{`"kind":"ConfigMap","apiVersion":"v1",`, ``} {
		t.Run("begins with "+form, func(t *testing.T) {
			t.Parallel()
			s := start(t, apiserver.Options{})
			load := func(value string) {
				t.Helper()
				if err := s.Preload(configMaps, 3, func(i int, version string) apiserver.Encoded {
					name := fmt.Sprint("m", i)
					return apiserver.Encoded{Namespace: "a", Name: name, UID: "u" + name, JSON: fmt.Appendf(nil,
						`{%s"metadata":{"name":%q,"namespace":"a","uid":"u%s","resourceVersion":%q},"data":{"k":%q}}`, form, name, name,
						version, value)}
				}); err != nil {
					t.Fatal(err)
				}
			}
			load("loaded")
			c := typedFor(t, s.Config()).CoreV1().ConfigMaps("a")
			get := func() *corev1.ConfigMap {
				t.Helper()
				cm, err := c.Get(t.Context(), "m1", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return cm
			}
			refused := func(stale *corev1.ConfigMap) {
				t.Helper()
				before := get()
				changed := stale.DeepCopy()
				changed.Data = map[string]string{"k": "lost"}
				if _, err := c.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
					t.Errorf("an update of version %s, which is %s now: %v", stale.ResourceVersion, before.ResourceVersion, err)
				}
				patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{"k":"lost"}}`, stale.ResourceVersion)
				if _, err := c.Patch(t.Context(), "m1", types.MergePatchType, patch,
					metav1.PatchOptions{}); !apierrors.IsConflict(err) {
					t.Errorf("a patch of version %s: %v", stale.ResourceVersion, err)
				}
				for _, p := range []metav1.Preconditions{
					{ResourceVersion: &stale.ResourceVersion}, {UID: new(types.UID("another"))},
				} {
					if err := c.Delete(t.Context(), "m1", metav1.DeleteOptions{Preconditions: &p}); !apierrors.IsConflict(err) {
						t.Errorf("a delete with preconditions %v: %v", p, err)
					}
				}
				if after := get(); after.ResourceVersion != before.ResourceVersion || after.Data["k"] != before.Data["k"] {
					t.Errorf("what was refused has changed %v at %s to %v at %s", before.Data, before.ResourceVersion, after.Data,
						after.ResourceVersion)
				}
			}
			loaded := get()
			fresh := loaded.DeepCopy()
			fresh.Data = map[string]string{"k": "written"}
			if _, err := c.Update(t.Context(), fresh, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("an update of the present version: %v", err)
			}
			refused(loaded)
			written := get()
			load("again")
			refused(written)
			if got := get().Data["k"]; got != "again" {
				t.Errorf("it has %q", got)
			}
		})
	}
}
