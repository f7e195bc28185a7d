package fairlead_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// The error names every kind whose definition is missing: those of all controllers and of each of their watches.
func TestErrorNamesAllMissingKinds(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rt := fairlead.New(s.Config())
	kind := func(name string) reconcile.WatchOption {
		return reconcile.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name})
	}
	done := reconcile.Func[metav1.PartialObjectMetadata](
		func(context.Context, *metav1.PartialObjectMetadata) (reconcile.Result, error) {
			return reconcile.Done, nil
		},
	)
	reconcile.New[metav1.PartialObjectMetadata](rt, "one", done, reconcile.Primary(kind("One")),
		reconcile.Owns[metav1.PartialObjectMetadata](kind("Child")),
		reconcile.Owns[metav1.PartialObjectMetadata](kind("Grandchild")))
	reconcile.New[metav1.PartialObjectMetadata](rt, "two", done, reconcile.Primary(kind("Two")))
	reconcile.New[metav1.PartialObjectMetadata](rt, "three", done, reconcile.Primary(kind("Three")))
	err = rt.Run(t.Context())
	if err == nil {
		t.Fatal("Run returned no error")
	}
	for _, name := range []string{"One", "Child", "Grandchild", "Two", "Three"} {
		if !strings.Contains(err.Error(), `no matches for kind "`+name+`"`) {
			t.Errorf("%s is missing from the error: %v", name, err)
		}
	}
}

// TestAbsentKindAtTheEnd: a controller that waits for its kind when the program stops has not failed.
func TestAbsentKindAtTheEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		reconcile.New[metav1.PartialObjectMetadata](rt, "widgets", reconcile.Func[metav1.PartialObjectMetadata](
			func(context.Context, *metav1.PartialObjectMetadata) (reconcile.Result, error) {
				return reconcile.Done, nil
			},
		), reconcile.Primary(reconcile.Optional(),
			reconcile.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})))
		r := run(rt)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestOptionalKinds: controllers work with kinds that are served only later.
func TestOptionalKinds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "owner")
		rt := fairlead.New(s.Config())
		kind := reconcile.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
		var d diary
		maps := reconcile.New[corev1.ConfigMap](rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
				d.add("map " + cm.Name)
				return reconcile.Done, nil
			},
		), reconcile.Watches(func(w *metav1.PartialObjectMetadata) []reconcile.Key {
			return []reconcile.Key{{Namespace: w.Namespace, Name: w.Labels["of"]}}
		}, kind, reconcile.Optional()))
		widgets := reconcile.New[metav1.PartialObjectMetadata](rt, "widgets", reconcile.Func[metav1.PartialObjectMetadata](
			func(_ context.Context, w *metav1.PartialObjectMetadata) (reconcile.Result, error) {
				d.add("widget " + w.Name)
				return reconcile.Done, nil
			},
		), reconcile.Primary(kind, reconcile.Optional()))
		r := run(rt)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := d.all(); !slices.Equal(got, []string{"map owner"}) {
			t.Errorf("before the kind is served: %v", got)
		}
		if code, body := get(rt, "/readyz"); code != http.StatusOK {
			t.Errorf("readyz: %d %s", code, body)
		}
		if _, page := get(rt, "/debug/controllers"); !strings.Contains(page, "waits for its kind") {
			t.Errorf("the page does not name the missing kind:\n%s", page)
		}
		causes := widgets.Why(t.Context(), why.Object{
			Group: "example.com", Kind: "Widget", Namespace: "a", Name: "w",
		})
		if len(causes) != 1 || !strings.Contains(causes[0].Message, "waits until its kind is served") {
			t.Errorf("why: %v", causes)
		}
		s.Register(apiserver.Resource{
			Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget",
			Namespaced: true,
		})
		if _, err := s.Put(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "w", Labels: map[string]string{"of": "owner"}},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := d.all()
		slices.Sort(got)
		if want := []string{"map owner", "map owner", "widget w"}; !slices.Equal(got, want) {
			t.Errorf("after it is served: %v, want %v", got, want)
		}
		for _, c := range []*reconcile.Controller{maps, widgets} {
			if state := c.Describe(0).State; state != "running" {
				t.Errorf("%s is %s", c.Name(), state)
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
