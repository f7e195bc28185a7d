package observe_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"

	"github.com/fairlead-io/fairlead/observe"
)

// contents returns the content of each store of config maps: "metadata" or "whole".
func (h *host) contents() (all []string) {
	for _, st := range h.cache.Stores(configMaps) {
		what := "whole"
		if st.Options().Content.Metadata {
			what = "metadata"
		}
		all = append(all, what)
	}
	return all
}

// A source watches metadata alone if no observer needs more.
func TestContentOfStores(t *testing.T) {
	t.Parallel()
	type meta = metav1.PartialObjectMetadata
	onMeta := func(h *host) { observe.On(h, Maps, ignore[meta]) }
	onWhole := func(h *host) { observe.On(h, Maps, ignore[corev1.ConfigMap]) }
	filtered := func(h *host) { observe.On(h, "some", ignore[meta]) }
	all := func(fns ...func(h *host)) func(h *host) {
		return func(h *host) {
			for _, fn := range fns {
				fn(h)
			}
		}
	}
	for _, tc := range []struct {
		reason string
		before func(h *host)
		late   func(h *host) // while the registry runs
		want   []string
	}{
		{"metadata only", onMeta, nil, []string{"metadata"}},
		{"a collection of metadata", func(h *host) { observe.Known[meta](h, Maps) }, nil, []string{"metadata"}},
		{"metadata and objects", all(onMeta, onWhole), nil, []string{"whole"}},
		{"objects of any type", func(h *host) {
			onMeta(h)
			observe.OnObject(h, Maps, func(context.Context, observe.ObjectEvent) error { return nil })
		}, nil, []string{"whole"}},
		{"through a filter of metadata", func(h *host) {
			observe.Filter(h, "some", Maps, func(*meta) bool { return true })
			filtered(h)
		}, nil, []string{"metadata"}},
		{"through a filter of objects", func(h *host) {
			observe.Filter(h, "some", Maps, func(*corev1.ConfigMap) bool { return true })
			filtered(h)
		}, nil, []string{"whole"}},
		{"through two filters, the first one of objects", func(h *host) {
			observe.Filter(h, "more", Maps, func(*corev1.ConfigMap) bool { return true })
			observe.Filter(h, "some", "more", func(*meta) bool { return true })
			filtered(h)
		}, nil, []string{"whole"}},
		{"a source is derived from metadata", func(h *host) {
			observe.Map(h, "made", Maps, func(m *meta) *corev1.Secret { return &corev1.Secret{} })
			observe.On(h, "made", ignore[meta])
		}, nil, []string{"metadata"}},
		{"a source is derived from objects", func(h *host) {
			observe.Map(h, "made", Maps, func(*corev1.ConfigMap) *corev1.Secret { return &corev1.Secret{} })
			observe.On(h, "made", ignore[meta])
			onMeta(h)
		}, nil, []string{"whole"}},
		{"a source is derived from objects, without an observer", func(h *host) {
			observe.Map(h, "made", Maps, func(*corev1.ConfigMap) *corev1.Secret { return &corev1.Secret{} })
			onMeta(h)
		}, nil, []string{"metadata"}},
		{"another source of the same objects is observed as a whole", func(h *host) {
			onMeta(h)
			observe.Source[corev1.ConfigMap](h, "again")
			observe.On(h, "again", ignore[corev1.ConfigMap])
		}, nil, []string{"whole"}},
		{"objects later", onMeta, onWhole, []string{"whole", "metadata"}},
		{"metadata later", onWhole, onMeta, []string{"whole"}},
		{"metadata of another source later", onWhole, func(h *host) {
			observe.Source[corev1.ConfigMap](h, "again")
			observe.On(h, "again", ignore[meta])
		}, []string{"whole"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				h.put("a/x", "1")
				sourceOf(h, Maps)
				tc.before(h)
				h.start()
				if tc.late != nil {
					tc.late(h)
				}
				if err := h.WaitSynced(t.Context()); err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(tc.want, h.contents()); d != "" {
					t.Errorf("contents of the stores (-want +got):\n%s", d)
				}
			})
		})
	}
}

// An observer of metadata gets the same events as one of objects, and continues when that one is added and removed.
func TestMetadataBesideObjects(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "secret")
		var asked atomic.Int32
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(context.Context) ([]cache.Option, error) {
			asked.Add(1)
			return nil, nil
		})
		var got []string
		observe.On(h, Maps, func(_ context.Context, e observe.Event[metav1.PartialObjectMetadata]) error {
			line := e.Type.String()
			if o := e.Object(); o != nil {
				line += " " + o.Kind + " " + o.APIVersion + " " + o.Name
			}
			got = append(got, line)
			return nil
		})
		known := observe.Known[metav1.PartialObjectMetadata](h, Maps)
		h.start()
		for r := range known.Store().Snapshot().All() {
			if strings.Contains(string(r.Raw()), "secret") {
				t.Errorf("stored is %q", r.Raw())
			}
		}
		if d := h.Describe().Sources[0]; !d.Running || d.Objects != 1 || len(d.Status) != 1 {
			t.Errorf("described as %+v", d)
		}
		if others := h.DescribeOthers(h.cache.Stores(configMaps)); len(others) != 0 {
			t.Errorf("the other observer: %+v", others)
		}
		var objects story
		o := observe.On(h, Maps, objects.observe)
		synctest.Wait()
		if d := cmp.Diff([]string{"Added initial a/x =secret", "Synchronized"}, objects.take()); d != "" {
			t.Error(d)
		}
		h.put("a/y", "1")
		synctest.Wait()
		o.Remove()
		synctest.Wait()
		h.remove("a/x")
		synctest.Wait()
		const of = " ConfigMap v1 "
		if d := cmp.Diff([]string{"Added" + of + "x", "Synchronized", "Added" + of + "y", "Deleted" + of + "x"},
			got); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"metadata"}, h.contents()); d != "" {
			t.Errorf("contents of the stores (-want +got):\n%s", d)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the function of the source was called %d times", n)
		}
		if _, err := known.Get(cache.Key{Namespace: "a", Name: "y"}); err != nil {
			t.Error(err)
		}
	})
}

// SetNamespaces applies to the stores of objects and of metadata.
func TestNamespacesOfMetadata(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		for _, key := range []string{"a/x", "b/x", "c/x"} {
			h.put(key, "1")
		}
		origin := observe.Source[corev1.ConfigMap](h, Maps, cache.Namespaces("a"))
		metadata := observe.Known[metav1.PartialObjectMetadata](h, Maps)
		h.start()
		objects := observe.Known[corev1.ConfigMap](h, Maps)
		synctest.Wait()
		for _, namespaces := range [][]string{{"b", "c"}, {"c"}, nil} {
			if err := origin.SetNamespaces(namespaces...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := len(namespaces)
			if want == 0 {
				want = 3
			}
			if metadata.Len() != want || objects.Len() != want {
				t.Errorf("%v: %d and %d objects", namespaces, metadata.Len(), objects.Len())
			}
		}
	})
}
