package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// An own write may be missing in the watch beyond the bound. Reads of that object, and lists, then ask the server until
// the watch has caught up.
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
		c.put(foreign("web", "k", "newer")) // hidden by the overlay
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
			t.Errorf("the statistics are %+v", st.Overlay)
		}
		hold.Release()
		synctest.Wait()
		check("when the watch has caught up", "newer", 0, 0)
	})
}

// withSubdomains returns the options of a server that selects pods by a field that kube-apiserver does not support.
func withSubdomains() apiserver.Options {
	o := apiserver.Options{Resources: apiserver.DefaultResources()}
	for i, r := range o.Resources {
		if r.Resource == "pods" {
			o.Resources[i].Fields["spec.subdomain"] = store.FieldPath("spec.subdomain")
		}
	}
	return o
}

// The client cannot evaluate a field selector on a response. If the watch is late, it asks the server for the object.
// Reads show the result, also if the object has left the selector.
func TestUnknownFieldSelectorAsksTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{
			server: withSubdomains(), watch: []string{"Pod"}, sources: []cache.Option{cache.Fields("spec.subdomain=n1")},
		})
		defer c.close()
		st := c.cache.Stores(pods)[0]
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		on := func(name, node string) *corev1.Pod {
			p := pod(name)
			p.Spec.Subdomain = node
			return p
		}
		one, two := on("one", "n1"), on("two", "n2")
		for _, tc := range []struct {
			reason string
			write  func() error
			pod    *corev1.Pod
			shown  bool
		}{
			{"a selected object is created", func() error { return c.client.Create(c.ctx, one) }, one, true},
			{"an object outside the selector is created", func() error { return c.client.Create(c.ctx, two) }, two, false},
			{"it enters the selector", func() error {
				return client.Modify(c.ctx, c.client, two, func(p *corev1.Pod) error { p.Spec.Subdomain = "n1"; return nil })
			}, two, true},
			{"it leaves the selector", func() error {
				return client.Modify(c.ctx, c.client, two, func(p *corev1.Pod) error { p.Spec.Subdomain = "n2"; return nil })
			}, two, false},
			{"a change", func() error {
				return client.Modify(c.ctx, c.client, one, func(p *corev1.Pod) error { p.Finalizers = []string{"x/y"}; return nil })
			}, one, true},
			{
				"a delete, which the finalizer holds", func() error { return c.client.Delete(c.ctx, one, client.Grace(0)) }, one,
				true,
			},
		} {
			lists, begun := c.requests("list"), time.Now()
			if err := tc.write(); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			r, ok := st.Get(client.KeyOf(tc.pod))
			if ok != tc.shown || time.Since(begun) > 200*time.Millisecond || c.requests("list")-lists != 1 {
				t.Errorf("%s: after %v and %d lists the store has %v", tc.reason, time.Since(begun), c.requests("list")-lists, r)
			}
			if ok && r.Version() < tc.pod.ResourceVersion {
				t.Errorf("%s: the store is at %s, want %s", tc.reason, r.Version(), tc.pod.ResourceVersion)
			}
		}
		if r, ok := st.Get(key("one")); !ok || !r.Deleting() {
			t.Errorf("after the delete the store has %v", r)
		}
		hold.Release()
		synctest.Wait()
		if _, ok := st.Get(key("two")); ok {
			t.Error("the deleted object is shown again when the watch has caught up")
		}
		<-time.After(2 * time.Minute) // a bookmark
		if n := st.OverlayStats().Entries; n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

// A successful write that the cache cannot show is not a failure. Reads ask the server until the cache shows it.
func TestWriteMissingInTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.put(foreign("web", "replicas", "1"))
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		c.server.On(apiserver.Match{Verb: "list"}, apiserver.Drop())
		next := c.server.Revision() + 1
		c.server.On(apiserver.Match{Verb: "update", Subresource: "scale"},
			apiserver.Before(func(context.Context, apiserver.Request) {
				c.put(foreign("web", "replicas", "3"))
			}), apiserver.Respond(http.StatusOK, "application/json", fmt.Sprintf(
				`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"a","resourceVersion":"%d"},"spec":{"replicas":3}}`, next)))
		scale := &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a"},
			Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
		}
		if err := c.client.SubResource("scale").Update(c.ctx, configMap("web"), client.Body(scale)); err != nil {
			t.Fatal(err)
		}
		read := func(reason string, gets int) {
			t.Helper()
			before := c.requests("get")
			if cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web")); err != nil || cm.Data["replicas"] != "3" {
				t.Errorf("%s: got %v, %v", reason, cm, err)
			}
			if n := c.requests("get") - before; n != gets {
				t.Errorf("%s: %d requests, want %d", reason, n, gets)
			}
		}
		read("while the cache is behind", 1)
		hold.Release()
		synctest.Wait()
		read("when it is not", 0)
	})
}

// A write that one store cannot show in time has ended for all stores, so they hold no events back.
func TestSlowStoreHoldsNoEventsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{server: withSubdomains()})
		defer c.close()
		const owner = "reconcile/test"
		var cursors []*store.Cursor
		for _, node := range []string{"n1", "n2", "n3"} {
			h, err := c.cache.Acquire(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, cache.Fields("spec.subdomain="+node))
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
		ctx := binding.With(c.ctx, binding.Binding{Write: store.WriteContext{Owner: owner, Primary: key("one")}})
		if err := c.client.Create(ctx, pod("one")); err != nil || time.Since(begun) > 200*time.Millisecond {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		hold.Release()
		for i, node := range []string{"n1", "n2", "n3"} {
			live, err := c.server.Object(pods, "a", "one")
			if err != nil {
				t.Fatal(err)
			}
			live.Object["spec"].(map[string]any)["subdomain"] = node
			c.put(live)
			synctest.Wait()
			var delivered []store.EventType
			for events := cursors[i].Take(10); len(events) > 0; events = cursors[i].Take(10) {
				for _, e := range events {
					delivered = append(delivered, e.Type)
				}
			}
			if !slices.Contains(delivered, store.Added) {
				t.Errorf("the reconciler of %s got %v, want ADDED", node, delivered)
			}
		}
	})
}
