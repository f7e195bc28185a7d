package client_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// An own write that the watch does not bring within the bound is not believed any longer: reads of that object, and lists, ask the
// server, until the watch has caught up.
func TestAnOverdueWriteIsReadLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}, store: store.Options{OverlayBound: 20 * time.Second}})
		defer c.close()
		for _, name := range []string{"web", "other"} {
			c.put(foreign(name, "k", "v"))
		}
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		if err := client.Modify(c.ctx, c.client, configMap("web"), set("k", "own")); err != nil {
			t.Fatal(err)
		}
		c.put(foreign("web", "k", "newer")) // what the overlay hides
		check := func(when, want string, gets, lists int) {
			t.Helper()
			wasGets, wasLists := c.requests("get"), c.requests("list")
			cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
			if err != nil || cm.Data["k"] != want {
				t.Errorf("%s: got %v, %v; want %s", when, cm, err, want)
			}
			if _, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("other")); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			var list corev1.ConfigMapList
			if err := c.client.List(c.ctx, &list, client.InNamespace("a")); err != nil || len(list.Items) != 2 {
				t.Errorf("%s: a list has %d, %v", when, len(list.Items), err)
			}
			for _, cm := range list.Items {
				if cm.Name == "web" && cm.Data["k"] != want {
					t.Errorf("%s: a list shows %s, want %s", when, cm.Data["k"], want)
				}
			}
			if g, l := c.requests("get")-wasGets, c.requests("list")-wasLists; g != gets || l != lists {
				t.Errorf("%s: %d gets and %d lists were sent, want %d and %d", when, g, l, gets, lists)
			}
		}
		<-time.After(19 * time.Second)
		check("before the bound", "own", 0, 0)
		<-time.After(2 * time.Second)
		check("after the bound", "newer", 1, 1)
		if st := c.cache.Stores(configMaps)[0].Stats(); len(st.Overlay.Overdue) != 1 || st.Overlay.Overdue[0] != key("web") {
			t.Errorf("the statistics say %+v", st.Overlay)
		}
		hold.Release()
		synctest.Wait()
		check("when the watch has caught up", "newer", 0, 0)
	})
}

// Where a field selector cannot be evaluated on the answer, a write waits for the cache instead: for as long as it takes, but not longer
// than the bound, and then says that it has succeeded all the same.
func TestAFieldSelectorThatCannotBeEvaluatedWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}, sources: []source.Option{source.Fields("spec.nodeName=n1")}})
		defer c.close()
		st := c.cache.Stores(pods)[0]
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		time.AfterFunc(3*time.Second, hold.Release)
		begun := time.Now()
		p := pod("one")
		p.Spec.NodeName = "n1"
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		if r, ok := st.Get(key("one")); !ok || r.Version() != p.ResourceVersion || time.Since(begun) != 3*time.Second {
			t.Errorf("after %v the store has %v", time.Since(begun), r)
		}
		if err := client.Modify(c.ctx, c.client, p, func(p *corev1.Pod) error { p.Finalizers = []string{"x/y"}; return nil }); err != nil {
			t.Fatal(err)
		}
		hold = c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		time.AfterFunc(3*time.Second, hold.Release)
		begun = time.Now()
		if err := c.client.Delete(c.ctx, p, client.Grace(0)); err != nil {
			t.Fatal(err)
		}
		if r, ok := st.Get(key("one")); !ok || !r.Deleting() || time.Since(begun) != 3*time.Second {
			t.Errorf("after a delete and %v the store has %v", time.Since(begun), r)
		}
		hold = c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		begun = time.Now()
		p = pod("two")
		p.Spec.NodeName = "n1"
		if err := c.client.Create(c.ctx, p); !errors.Is(err, client.ErrCacheBehind) || time.Since(begun) != 10*time.Second || p.ResourceVersion == "" {
			t.Errorf("after %v: %v, version %q", time.Since(begun), err, p.ResourceVersion)
		}
	})
}

// A write that one store cannot show in time has ended for all of them: nothing is held back because of it.
func TestAStoreThatIsBehindHoldsNoEventsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		const owner = "reconcile/test"
		var cursors []*store.Cursor
		for _, node := range []string{"n1", "n2", "n3"} {
			h, err := c.cache.Acquire(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, source.Fields("spec.nodeName="+node))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release()
			<-h.Synced()
			cur := h.Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: owner})
			defer cur.Close()
			cursors = append(cursors, cur)
		}
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		begun := time.Now()
		ctx := client.Bind(c.ctx, client.Binding{Write: store.WriteContext{Owner: owner, Primary: key("one")}})
		if err := c.client.Create(ctx, pod("one")); !errors.Is(err, client.ErrCacheBehind) || time.Since(begun) != 10*time.Second {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		hold.Release()
		for i, node := range []string{"n1", "n2", "n3"} {
			live, err := c.server.Object(pods, "a", "one")
			if err != nil {
				t.Fatal(err)
			}
			live.Object["spec"].(map[string]any)["nodeName"] = node
			c.put(live)
			synctest.Wait()
			var given []store.EventType
			for events := cursors[i].Take(10); len(events) > 0; events = cursors[i].Take(10) {
				for _, e := range events {
					given = append(given, e.Type)
				}
			}
			if !slices.Contains(given, store.Added) {
				t.Errorf("the reconciler of %s was given %v, want ADDED", node, given)
			}
		}
	})
}
