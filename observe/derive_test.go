package observe_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"

	"github.com/fairlead-io/fairlead/observe"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("a/y", "22")
		var got, both story
		sourceOf(h, Maps)
		observe.Filter(h, "short", Maps, func(c *corev1.ConfigMap) bool { return len(c.Data["v"]) == 1 })
		observe.Filter(h, "short in a", "short", func(m *metav1.PartialObjectMetadata) bool { return m.Namespace == "a" })
		observe.On(h, "short", got.observe)
		observe.On(h, "short in a", both.observe, observe.Async(2))
		known := observe.Known[corev1.ConfigMap](h, "short")
		h.start()
		for _, put := range []string{"a/y=2", "b/z=3", "a/x=11", "a/x=111", "b/z=4"} {
			key, value, _ := strings.Cut(put, "=")
			h.put(key, value)
			synctest.Wait()
		}
		h.remove("b/z")
		synctest.Wait()
		want := []string{
			"Added initial a/x =1", "Synchronized", "Added a/y =2", "Added b/z =3", "Deleted a/x 1=11",
			"Modified b/z 3=4", "Deleted b/z 4=4",
		}
		if d := cmp.Diff(want, got.take()); d != "" {
			t.Error(d)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return strings.Contains(s, "b/z") })
		if d := cmp.Diff(want, both.take()); d != "" {
			t.Errorf("a filter of a filter: %s", d)
		}
		if n := known.Len(); n != 1 {
			t.Errorf("%d objects are known", n)
		}
		if _, err := known.Get(cache.Key{Namespace: "a", Name: "x"}); err == nil {
			t.Error("an excluded object is known")
		}
		if n := h.server.Log().Count(watches); n != 1 {
			t.Errorf("%d watches", n)
		}
	})
}

func TestMap(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("a/hidden", "")
		var got story
		calls := map[string]int{}
		sourceOf(h, Maps)
		observe.Map(h, "secrets", Maps, func(c *corev1.ConfigMap) *corev1.Secret {
			calls[c.Name]++
			switch c.Data["v"] {
			case "":
				return nil
			case "panic":
				panic("cannot make it")
			}
			return &corev1.Secret{Type: corev1.SecretType(c.Data["v"][:1])}
		})
		tellSecret := func(e observe.Event[corev1.Secret]) string {
			line := fmt.Sprint(e.Type, " ", e.Key)
			if e.Prior() != nil {
				line += " " + string(e.Prior().Type)
			}
			if e.Object() != nil {
				line += " " + string(e.Object().Type) + " v" + e.ResourceVersion()
				if e.Object().UID == "" || e.Object().Kind != "Secret" {
					t.Errorf("incomplete: %+v", e.Object())
				}
			}
			return line
		}
		observe.On(h, "secrets", func(_ context.Context, e observe.Event[corev1.Secret]) error {
			got.add(tellSecret(e))
			return nil
		})
		known := observe.Known[corev1.Secret](h, "secrets")
		h.start()
		for _, put := range []string{
			"a/x=2", "a/x=2 and the same is made of it", "a/hidden=3", "a/x=panic", "a/x=4",
			"a/hidden=",
		} {
			key, value, _ := strings.Cut(put, "=")
			h.put(key, value)
			synctest.Wait()
			if q := known.Store().Quarantined(); (value == "panic") != (len(q) == 1 && q[0].Key() == "a/x") {
				t.Errorf("after %s, quarantined: %+v", put, q)
			}
		}
		want := []string{
			"Added a/x 1 v1", "Synchronized /", "Modified a/x 1 2 v3", "Added a/hidden 3 v4", "Modified a/x 2 4 v5",
			"Deleted a/hidden 3 3 v6",
		}
		lines := got.take()
		lines[1] = strings.Replace(lines[1], "Synchronized ", "Synchronized /", 1)
		if d := cmp.Diff(want, lines); d != "" {
			t.Error(d)
		}
		if n := known.Len(); n != 1 {
			t.Errorf("%d objects are known", n)
		}
		if calls["x"] != 5 || calls["hidden"] != 3 {
			t.Errorf("calls: %v", calls)
		}
		if !strings.Contains(h.log.String(), "cannot make it") {
			t.Errorf("a panic is not reported:\n%s", h.log)
		}
	})
}

// If two objects are mapped to the same key, the first one wins. The second one follows when the first is deleted.
func TestMapToTheSameKey(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/2", "from 2")
		h.put("a/3", "from 3")
		var got story
		sourceOf(h, Maps)
		observe.Map(h, "one", Maps, func(c *corev1.ConfigMap) *corev1.ConfigMap {
			if c.Data["v"] == "itself" {
				return configMap("", "", "v", c.Data["v"])
			}
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", UID: "1"}, Data: c.Data}
		})
		observe.On(h, "one", got.observe)
		h.start()
		step := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, got.take()); d != "" {
				t.Error(d)
			}
		}
		step("Added initial a/one =from 2", "Synchronized")
		h.put("a/3", "from 3 again")
		step()
		h.put("a/1", "from 1")
		step("Modified a/one from 2=from 1")
		h.remove("a/1")
		step("Modified a/one from 1=from 2")
		h.put("a/2", "itself")
		synctest.Wait()
		lines := got.take()
		slices.Sort(lines)
		if d := cmp.Diff([]string{"Added a/2 =itself", "Modified a/one from 2=from 3 again"}, lines); d != "" {
			t.Error(d)
		}
		h.remove("a/3")
		step("Deleted a/one from 3 again=from 3 again")
		h.put("a/2", "back")
		synctest.Wait()
		lines = got.take()
		slices.Sort(lines)
		if d := cmp.Diff([]string{"Added a/one =back", "Deleted a/2 itself=itself"}, lines); d != "" {
			t.Error(d)
		}
	})
}

func TestJoin(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("b/x", "1")
		gate := apiserver.NewGate()
		h.server.On(apiserver.Match{Namespace: "b"}, apiserver.HoldRequest(gate))
		var got story
		sourceOf(h, "a", cache.Namespaces("a"))
		sourceOf(h, "b", cache.Namespaces("b"))
		observe.Map(h, "renamed", "b", func(c *corev1.ConfigMap) *corev1.ConfigMap { // to the names of namespace a
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: c.Name},
				Data:       map[string]string{"v": "b" + c.Data["v"]},
			}
		})
		observe.Join[corev1.ConfigMap](h, "joined", "a", "renamed")
		o := observe.On(h, "joined", got.observe)
		h.start()
		if lines := got.take(); len(lines) > 0 {
			t.Errorf("before all inputs are synced: %q", lines)
		}
		h.put("b/y", "1")
		gate.Open()
		<-o.Synced()
		synctest.Wait()
		lines := got.take()
		slices.Sort(lines[:2])
		if d := cmp.Diff([]string{"Added initial a/x =1", "Added initial a/y =b1", "Synchronized"}, lines); d != "" {
			t.Error(d)
		}
		step := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, got.take()); d != "" {
				t.Error(d)
			}
		}
		h.put("b/x", "2")
		step()
		h.remove("a/x")
		step("Deleted inferred a/x 1=1", "Added a/x =b2")
		h.put("a/x", "3")
		step("Deleted inferred a/x b2=b2", "Added a/x =3")
		h.remove("b/x")
		step()
		h.remove("a/x")
		step("Deleted a/x 3=3")
		if n := h.server.Log().Count(watches); n != 2 {
			t.Errorf("%d watches", n)
		}
		o.Remove()
		synctest.Wait()
		if n := h.server.Log().Open(watches); n != 0 {
			t.Errorf("%d watches are open without an observer of the derived source", n)
		}
	})
}

func TestUnstructuredMapsAndKinds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		if _, err := h.server.Put(widget("w", "red")); err != nil {
			t.Fatal(err)
		}
		var got []string
		observe.SourceOfKind(h, "widgets", apiserver.Widgets().GVK())
		observe.Join[unstructured.Unstructured](h, "same", "widgets")
		observe.On(h, "same", func(_ context.Context, e observe.Event[unstructured.Unstructured]) error {
			if u := e.Object(); u != nil {
				colour, _, _ := unstructured.NestedString(u.Object, "spec", "colour")
				got = append(got, u.GetKind()+" "+u.GetName()+" "+colour)
			}
			return nil
		})
		h.start()
		if d := cmp.Diff([]string{"Widget w red"}, got); d != "" {
			t.Error(d)
		}
	})
}

func TestKnown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("b/y", "2")
		sourceOf(h, Maps)
		known := observe.Known[corev1.ConfigMap](h, Maps)
		x := cache.Key{Namespace: "a", Name: "x"}
		if _, err := known.Get(x); err == nil || known.Len() != 0 || known.Store() != nil ||
			len(maps.Collect(known.All())) != 0 {
			t.Error("the collection has objects before the start")
		}
		h.start()
		<-known.Synced()
		c, err := known.Get(x)
		if err != nil || c.Data["v"] != "1" {
			t.Errorf("Get: %v, %v", c, err)
		}
		keys := func(all map[cache.Key]*corev1.ConfigMap) []string {
			var out []string
			for k := range all {
				out = append(out, k.String())
			}
			slices.Sort(out)
			return out
		}
		if err := cache.IndexBy(cache.Of[corev1.ConfigMap](known.Store()), "v",
			func(c *corev1.ConfigMap) []string { return []string{c.Data["v"]} }); err != nil {
			t.Fatal(err)
		}
		for reason, tc := range map[string]struct {
			got  map[cache.Key]*corev1.ConfigMap
			want []string
		}{
			"all":       {maps.Collect(known.All()), []string{"a/x", "b/y"}},
			"namespace": {maps.Collect(known.InNamespace("b")), []string{"b/y"}},
			"labels":    {maps.Collect(known.Select(labels.SelectorFromSet(labels.Set{"no": "such"}))), nil},
			"index":     {maps.Collect(known.Index("v", "2")), []string{"b/y"}},
		} {
			if d := cmp.Diff(tc.want, keys(tc.got)); d != "" {
				t.Errorf("%s: %s", reason, d)
			}
		}
		h.put("a/x", "2")
		synctest.Wait()
		if c, _ := known.Get(x); c.Data["v"] != "2" {
			t.Errorf("the collection is not updated: %v", c)
		}
		known.Remove()
		synctest.Wait()
		if n := h.server.Log().Open(watches); n != 0 || known.Len() != 0 {
			t.Errorf("after Remove: %d watches, %d objects", n, known.Len())
		}
	})
}
