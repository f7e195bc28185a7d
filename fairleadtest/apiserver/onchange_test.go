package apiserver_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// changes records what OnChange reports. It has no lock, so the race detector sees calls that are not in order.
type changes struct{ list []apiserver.Change }

func (c *changes) record(change apiserver.Change) { c.list = append(c.list, change) }

// short returns revision, name and data before and after of each change.
func (c *changes) short() []string {
	data := func(u *unstructured.Unstructured) string {
		if u == nil {
			return "-"
		}
		s, _, _ := unstructured.NestedString(u.Object, "data", "k")
		return s
	}
	var out []string
	for _, e := range c.list {
		some := e.New
		if some == nil {
			some = e.Old
		}
		out = append(out, fmt.Sprintf("%d %s %s %s→%s", e.Revision, e.Resource.Resource, some.GetName(), data(e.Old),
			data(e.New)))
	}
	return out
}

// TestOnChangeReportsEachWrite: requests and direct writes are reported once; what changes nothing is not.
func TestOnChangeReportsEachWrite(t *testing.T) {
	t.Parallel()
	var seen changes
	s := start(t, apiserver.Options{OnChange: seen.record})
	c := typed(t, s).CoreV1().ConfigMaps("a")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Create(t.Context(), configMap("x", "1"), metav1.CreateOptions{}))
	if n := len(seen.list); n != 1 {
		t.Fatalf("the answer came after %d reports, want 1", n)
	}
	must(c.Create(t.Context(), configMap("y", "1"), metav1.CreateOptions{DryRun: []string{"All"}}))
	must(c.Update(t.Context(), configMap("x", "2"), metav1.UpdateOptions{}))
	must(c.Update(t.Context(), configMap("x", "2"), metav1.UpdateOptions{}))
	must(c.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"data":{"k":"3"},"metadata":{"finalizers":["a/b"]}}`),
		metav1.PatchOptions{}))
	must(nil, c.Delete(t.Context(), "x", metav1.DeleteOptions{}))
	must(c.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}))
	must(s.Put(configMap("z", "1")))
	must(nil, s.Publish(configMaps, func(version string) apiserver.Encoded {
		return apiserver.Encoded{
			Namespace: "a", Name: "z",
			JSON: []byte(`{"metadata":{"name":"z","namespace":"a","resourceVersion":"` + version + `"},"data":{"k":"2"}}`),
		}
	}))
	must(nil, s.Poison(configMaps, "a", "z", func([]byte) []byte { return []byte("{") }))
	must(nil, s.Remove(configMaps, "a", "z"))
	want := []string{
		"2 configmaps x -→1", "3 configmaps x 1→2", "4 configmaps x 2→3", "5 configmaps x 3→3", "6 configmaps x 3→-",
		"7 configmaps z -→1", "8 configmaps z 1→2", "9 configmaps z 2→", "10 configmaps z →-",
	}
	if diff := cmp.Diff(want, seen.short()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if at := seen.list[3].New.GetDeletionTimestamp(); at == nil {
		t.Error("the mark of a deletion is not reported")
	}
}

// TestOnChangeKeepsTheOrderOfRevisions: of writes side by side, each is reported after those before it.
func TestOnChangeKeepsTheOrderOfRevisions(t *testing.T) {
	t.Parallel()
	var seen changes
	s := start(t, apiserver.Options{OnChange: seen.record})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 25 {
				if _, err := s.Put(configMap(fmt.Sprint(i%3), fmt.Sprint(i, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var revisions []uint64
	last := map[string]*unstructured.Unstructured{}
	for _, e := range seen.list {
		revisions = append(revisions, e.Revision)
		name := e.New.GetName()
		if diff := cmp.Diff(last[name], e.Old); diff != "" {
			t.Errorf("revision %d begins with another state (-last +old):\n%s", e.Revision, diff)
		}
		last[name] = e.New
	}
	if len(revisions) != 200 || !slices.IsSorted(revisions) {
		t.Errorf("revisions %v, want 200 in order", revisions)
	}
}
