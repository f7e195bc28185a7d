package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// acquire watches config maps with some options, and waits until they are listed.
func (c *cluster) acquire(t *testing.T, opts ...cache.Option) {
	t.Helper()
	h, err := c.cache.Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	c.stop = append(c.stop, h.Release)
	<-h.Synced()
	synctest.Wait()
}

// labelled returns a config map of a namespace, with labels such as "app=web,tier=db".
func labelled(namespace, name, labels string) *corev1.ConfigMap {
	cm := foreign(name)
	cm.Namespace, cm.Labels = namespace, map[string]string{}
	for pair := range strings.SplitSeq(labels, ",") {
		key, value, _ := strings.Cut(pair, "=")
		cm.Labels[key] = value
	}
	return cm
}

// names lists config maps in both ways of listing, and returns the number of requests of each.
func (c *cluster) names(t *testing.T, opts ...client.ReadOption) (names []string, requests int, err error) {
	t.Helper()
	before := c.requests("list")
	var list corev1.ConfigMapList
	if err = c.client.List(c.ctx, &list, opts...); err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	requests = c.requests("list") - before
	shared := 0
	for _, e := range client.List[corev1.ConfigMap](c.ctx, c.client, opts...) {
		if e == nil {
			shared++
		}
	}
	if again := c.requests("list") - before - requests; again != requests || shared != len(names) {
		t.Errorf("one list has %d objects after %d requests, the other %d after %d", len(names), requests, shared, again)
	}
	slices.Sort(names)
	return names, requests, err
}

// A read asks the server only if no store covers all objects that it may find.
func TestReadsFromACoveringStore(t *testing.T) {
	t.Parallel()
	web := []cache.Option{cache.Labels("app=web")}
	for _, tc := range []struct {
		reason   string
		watch    [][]cache.Option
		get      string // namespace/name
		list     []client.ReadOption
		want     string // names
		requests int
	}{
		{"get of an object with the labels", [][]cache.Option{web}, "a/web", nil, "web", 0},
		{"get of an object with other labels", [][]cache.Option{web}, "a/api", nil, "api", 1},
		{"get of an absent object", [][]cache.Option{web}, "a/none", nil, "", 1},
		{
			"get in a namespace with a watch of its own",
			[][]cache.Option{web, {cache.Namespaces("b")}},
			"b/none", nil, "",
			0,
		},
		{"get within a field selector", [][]cache.Option{{cache.Fields("metadata.name=web")}}, "a/web", nil, "web", 0},
		{"get outside a field selector", [][]cache.Option{{cache.Fields("metadata.name=db")}}, "a/web", nil, "web", 1},
		{"list of the labels", [][]cache.Option{web}, "", []client.ReadOption{client.Labels("app=web")}, "db web web2", 0},
		{
			"list of the labels and more",
			[][]cache.Option{web},
			"",
			[]client.ReadOption{client.Labels("tier=db,app=web")},
			"db", 0,
		},
		{
			"list of the labels in a namespace",
			[][]cache.Option{web},
			"",
			[]client.ReadOption{client.Labels("app=web"), client.InNamespace("b")},
			"web2", 0,
		},
		{"list of other labels", [][]cache.Option{web}, "", []client.ReadOption{client.Labels("tier=db")}, "db", 1},
		{
			"list of fewer labels",
			[][]cache.Option{{cache.Labels("app=web,tier=db")}},
			"",
			[]client.ReadOption{client.Labels("app=web")},
			"db web web2", 1,
		},
		{"list of all", [][]cache.Option{web}, "", nil, "api db web web2", 1},
		{"list of all, with a watch of all", [][]cache.Option{web, nil}, "", nil, "api db web web2", 0},
		{
			"list of a namespace with a watch of its own",
			[][]cache.Option{{cache.Namespaces("a")}, {cache.Namespaces("b")}},
			"",
			[]client.ReadOption{client.InNamespace("b")},
			"web2", 0,
		},
		{
			"list of a namespace without a watch",
			[][]cache.Option{{cache.Namespaces("a")}},
			"",
			[]client.ReadOption{client.InNamespace("b")},
			"web2", 1,
		},
		{
			"list with a selector of the server",
			[][]cache.Option{{cache.Fields("metadata.name=web")}},
			"",
			[]client.ReadOption{client.Fields("metadata.name=web")},
			"web", 1,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{})
				defer c.close()
				c.put(labelled("a", "web", "app=web"))
				c.put(labelled("a", "db", "app=web,tier=db"))
				c.put(labelled("a", "api", "app=api"))
				c.put(labelled("b", "web2", "app=web"))
				for _, opts := range tc.watch {
					c.acquire(t, opts...)
				}
				if tc.get != "" {
					namespace, name, _ := strings.Cut(tc.get, "/")
					before := c.requests("get")
					cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, client.Key{Namespace: namespace, Name: name})
					if tc.want == "" && !apierrors.IsNotFound(err) || tc.want != "" && (err != nil || cm.Name != tc.want) {
						t.Errorf("got %v, %v", cm, err)
					}
					if n := c.requests("get") - before; n != tc.requests {
						t.Errorf("%d requests, want %d", n, tc.requests)
					}
					return
				}
				names, requests, err := c.names(t, tc.list...)
				if got := strings.Join(names, " "); err != nil || got != tc.want || requests != tc.requests {
					t.Errorf("got %q after %d requests, %v; want %q after %d", got, requests, err, tc.want, tc.requests)
				}
			})
		})
	}
}

// Own writes that bring an object into the label selector of a store, or take it out, are read at once.
func TestOwnWritesInAStoreOfLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		c.put(labelled("a", "web", "app=web"))
		c.acquire(t, cache.Labels("app=web"))
		hold := c.server.HoldEvents(apiserver.Match{})
		defer hold.Release()
		check := func(when, want, label string) {
			t.Helper()
			if names, requests, err := c.names(t, client.Labels("app=web")); err != nil || requests != 0 ||
				strings.Join(names, " ") != want {
				t.Errorf("%s: listed %v after %d requests, %v; want %q", when, names, requests, err, want)
			}
			if cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web")); err != nil || cm.Labels["app"] != label {
				t.Errorf("%s: got %v, %v", when, cm, err)
			}
		}
		move := func(label string) {
			t.Helper()
			if err := client.Modify(c.ctx, c.client, configMap("web"),
				func(cm *corev1.ConfigMap) error { cm.Labels["app"] = label; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		move("api")
		check("taken away", "", "api")
		move("web")
		check("brought back", "web", "web")
		shared, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.client.Patch(c.ctx, shared,
			client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`))); !errors.Is(err, client.ErrShared) {
			t.Errorf("a write into the shared object of that store: got %v", err)
		}
	})
}

func TestOwnedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		child := func(namespace, name string, owners ...types.UID) *corev1.ConfigMap {
			cm := labelled(namespace, name, "app=web")
			for _, uid := range owners {
				cm.OwnerReferences = append(cm.OwnerReferences,
					metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid})
			}
			return cm
		}
		for _, cm := range []*corev1.ConfigMap{
			child("a", "one", "u1"), child("a", "two", "u2", "u1"),
			child("a", "three", "u2"), child("b", "elsewhere", "u1"), child("a", "alone"),
		} {
			c.put(cm)
		}
		owner := func(namespace string, uid types.UID) *metav1.ObjectMeta {
			return &metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: uid}
		}
		if _, _, err := c.names(t, client.OwnedBy(owner("a", "u1"))); !errors.Is(err, client.ErrNotWatched) ||
			!strings.Contains(err.Error(), "the kind is not watched") {
			t.Errorf("not watched: got %v", err)
		}
		c.acquire(t, cache.Namespaces("a"))
		hold := c.server.HoldEvents(apiserver.Match{})
		defer hold.Release()
		own := child("a", "four", "u1")
		own.TypeMeta = metav1.TypeMeta{}
		if err := c.client.Create(c.ctx, own); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			reason string
			opts   []client.ReadOption
			want   string
			fails  error
		}{
			{"its children, in its namespace", []client.ReadOption{client.OwnedBy(owner("a", "u1"))}, "four one two", nil},
			{
				"a given namespace",
				[]client.ReadOption{client.InNamespace("a"), client.OwnedBy(owner("a", "u2"))},
				"three two", nil,
			},
			{
				"an owner of all namespaces",
				[]client.ReadOption{client.OwnedBy(owner("", "u2")), client.InNamespace("a")},
				"three two", nil,
			},
			{"with labels", []client.ReadOption{client.OwnedBy(owner("a", "u1")), client.Labels("app=api")}, "", nil},
			{"an owner without children", []client.ReadOption{client.OwnedBy(owner("a", "u3"))}, "", nil},
			{"an owner without a uid", []client.ReadOption{client.OwnedBy(owner("a", ""))}, "", client.ErrNoUID},
			{
				"a namespace without a watch",
				[]client.ReadOption{client.OwnedBy(owner("b", "u1"))},
				"",
				client.ErrNotWatched,
			},
		} {
			names, requests, err := c.names(t, tc.opts...)
			if got := strings.Join(names, " "); !errors.Is(err, tc.fails) || got != tc.want || requests != 0 {
				t.Errorf("%s: got %q after %d requests, %v; want %q", tc.reason, got, requests, err, tc.want)
			}
		}
	})
}

// An error for a missing index names the index, the kind, the existing indexes, and a remedy.
func TestIndexErrorsNameTheIndex(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		watch  [][]cache.Option
		opts   []client.ReadOption
		is     error // nil: the error is compared by says alone, if there is one
		says   []string
	}{
		{
			"another index",
			[][]cache.Option{nil},
			[]client.ReadOption{client.Index("size", "1")},
			nil,
			[]string{"no such index", `"size"`, "ConfigMap has the indexes colour, label, namespace, owner", "cache.IndexBy"},
		},
		{
			"no watch", nil,
			[]client.ReadOption{client.Index("size", "1")},
			client.ErrNotWatched,
			[]string{`cannot list ConfigMap: index "size"`, "the kind is not watched", "Owns"},
		},
		{
			"other labels",
			[][]cache.Option{{cache.Labels("app=web"), cache.Namespaces("a")}},
			[]client.ReadOption{client.Index("colour", "1")},
			client.ErrNotWatched,
			[]string{`"colour"`, "holds only namespace a with labels app=web"},
		},
		{
			"other namespaces",
			[][]cache.Option{{cache.Namespaces("a")}, {cache.Namespaces("b"), cache.Fields("metadata.name=x")}},
			[]client.ReadOption{client.Index("colour", "1"), client.InNamespace("c")},
			client.ErrNotWatched,
			[]string{"namespace a, and namespace b with fields metadata.name=x"},
		},
		{
			"asked live",
			[][]cache.Option{nil},
			[]client.ReadOption{client.Index("colour", "1"), client.Live()},
			client.ErrNotWatched,
			[]string{"Live"},
		},
		{
			"a field",
			[][]cache.Option{nil},
			[]client.ReadOption{client.Index("colour", "1"), client.Fields("data.x=y")},
			client.ErrNotWatched,
			[]string{"data.x=y"},
		},
		{
			"the read selects the labels",
			[][]cache.Option{{cache.Labels("app=web")}},
			[]client.ReadOption{client.Index("colour", "1"), client.Labels("app=web")},
			nil, nil,
		},
		{
			"another store of it has the index",
			[][]cache.Option{nil, {cache.Labels("app=web")}},
			[]client.ReadOption{client.Index("colour", "1"), client.Labels("app=web")},
			nil, nil,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{})
				defer c.close()
				for _, opts := range tc.watch {
					c.acquire(t, opts...)
				}
				if stores := c.cache.Stores(configMaps); len(stores) > 0 {
					if err := addIndex(stores[len(stores)-1]); err != nil {
						t.Fatal(err)
					}
				}
				_, _, err := c.names(t, tc.opts...)
				if (err != nil) != (tc.says != nil) || tc.is != nil && !errors.Is(err, tc.is) {
					t.Fatalf("got %v, want %v", err, tc.is)
				}
				for _, part := range tc.says {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not contain %q", err, part)
					}
				}
			})
		})
	}
}

// TestTwoWatchesOfAnObject: the wider of two watches falls behind. A read finds the state that the other watch has
// delivered.
func TestTwoWatchesOfAnObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		for _, name := range []string{"changed", "deleted", "other"} {
			c.put(foreign(name, "v", "1"))
		}
		c.acquire(t)
		for _, name := range []string{"changed", "deleted", "created"} {
			c.acquire(t, cache.Namespaces("a"), cache.Fields("metadata.name="+name))
		}
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch", Func: func(r apiserver.Request) bool {
			return r.Resource == "configmaps" && r.Query.Get("fieldSelector") == ""
		}})
		c.put(foreign("changed", "v", "2"))
		c.put(foreign("created", "v", "2"))
		if err := c.server.Delete(c.ctx, configMaps, "a", "deleted", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		for name, want := range map[string]string{"changed": "2", "created": "2", "other": "1", "deleted": ""} {
			cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, client.Key{Namespace: "a", Name: name})
			switch {
			case want == "" && !apierrors.IsNotFound(err):
				t.Errorf("%s: got %v, %v", name, cm, err)
			case want != "" && (err != nil || cm.Data["v"] != want):
				t.Errorf("%s: got %v, %v", name, cm, err)
			}
		}
		if n := c.requests("get"); n > 1 {
			t.Errorf("%d requests, want one, for the deleted object", n)
		}
		hold.Release()
		<-time.After(time.Second)
		if _, err := client.Get[corev1.ConfigMap](c.ctx, c.client,
			client.Key{Namespace: "a", Name: "deleted"}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		if n := c.requests("get"); n > 1 {
			t.Errorf("%d requests when both watches have caught up", n)
		}
	})
}
