package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

func TestReadsAskTheServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		setup  setup
		live   bool
		gets   int // requests for an existing and an absent object
	}{
		{"a kind without a watch", setup{}, false, 2},
		{"a watched kind costs no request", setup{watch: []string{"ConfigMap"}}, false, 0},
		{"unless the read is live", setup{watch: []string{"ConfigMap"}}, true, 2},
		{"a namespace without a watch", setup{
			watch: []string{"ConfigMap"}, sources: []cache.Option{cache.Namespaces("b")},
		}, false, 2},
		{
			"a watched namespace",
			setup{watch: []string{"ConfigMap"}, sources: []cache.Option{cache.Namespaces("a", "b")}},
			false, 0,
		},
		{
			"a store with a selector holds less than the kind",
			setup{watch: []string{"ConfigMap"}, sources: []cache.Option{cache.Labels("x=y")}},
			false, 2,
		},
		{"a store that was not listed yet", setup{watch: []string{"ConfigMap"}, hold: true}, false, 2},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := tc.setup
				s.lazy = true
				c := start(t.Context(), t, setup{})
				c.put(foreign("web", "k", "v"))
				c.close()
				c = start(t.Context(), t, s)
				defer c.close()
				c.put(foreign("web", "k", "v"))
				synctest.Wait()
				var r client.Reader = c.client
				if tc.live {
					r = c.client.Live()
				}
				before := c.requests("get")
				var cm corev1.ConfigMap
				if err := r.Get(c.ctx, key("web"), &cm); err != nil || cm.Data["k"] != "v" || cm.Kind != "ConfigMap" {
					t.Errorf("got %+v, %v", cm, err)
				}
				if err := r.Get(c.ctx, key("absent"), &cm); !apierrors.IsNotFound(err) {
					t.Errorf("got %v, want not found", err)
				}
				for _, none := range []client.Key{{Name: "web"}, {Namespace: "a"}} {
					if err := r.Get(c.ctx, none, &cm); !says(err, noName) {
						t.Errorf("%v: got %v, want a missing name", none, err)
					}
				}
				if n := c.requests("get") - before; n != tc.gets {
					t.Errorf("%d requests, want %d", n, tc.gets)
				}
				lists := c.requests("list")
				var list corev1.ConfigMapList
				if err := r.List(c.ctx, &list, client.InNamespace("a")); err != nil || len(list.Items) != 1 ||
					list.Items[0].Kind != "ConfigMap" {
					t.Errorf("got %+v, %v", list.Items, err)
				}
				if asked := c.requests("list") > lists; asked != (tc.gets > 0) {
					t.Errorf("the list asked the server: %v", asked)
				}
			})
		})
	}
}

func TestListSelections(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := setup{}
			if watched {
				s.watch = []string{"ConfigMap"}
			}
			c := start(t.Context(), t, s)
			defer c.close()
			for _, name := range []string{"one", "two", "three"} {
				cm := foreign(name)
				cm.Labels = map[string]string{"name": name}
				c.put(cm)
			}
			other := foreign("one")
			other.Namespace = "b"
			c.put(other)
			synctest.Wait()
			for _, tc := range []struct {
				reason string
				opts   []client.ReadOption
				want   int
			}{
				{"all", nil, 4},
				{"a namespace", []client.ReadOption{client.InNamespace("a")}, 3},
				{"labels", []client.ReadOption{client.Labels("name in (one,two)")}, 2},
				{"fields", []client.ReadOption{client.Fields("metadata.name=one")}, 2},
				{
					"both",
					[]client.ReadOption{client.Fields("metadata.name=one"), client.Labels("name"), client.InNamespace("a")},
					1,
				},
				{"live", []client.ReadOption{client.Live(), client.Labels("name=two")}, 1},
			} {
				var typed corev1.ConfigMapList
				meta := metav1.PartialObjectMetadataList{}
				meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
				loose := unstructured.UnstructuredList{}
				loose.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
				for _, list := range []client.ObjectList{&typed, &meta, &loose} {
					if err := c.client.List(c.ctx, list, tc.opts...); err != nil {
						t.Errorf("%s: %v", tc.reason, err)
					}
				}
				shared := 0
				for _, err := range client.List[corev1.ConfigMap](c.ctx, c.client, tc.opts...) {
					if err != nil {
						t.Error(err)
					}
					shared++
				}
				if diff := cmp.Diff([]int{tc.want, tc.want, tc.want, tc.want},
					[]int{len(typed.Items), len(meta.Items), len(loose.Items), shared}); diff != "" {
					t.Errorf("%s, watched %v (-want +got):\n%s", tc.reason, watched, diff)
				}
				if len(meta.Items) > 0 && (meta.Items[0].Kind != "ConfigMap" || loose.Items[0].GetKind() != "ConfigMap") {
					t.Errorf("%s, watched %v: items of kind %s and %s", tc.reason, watched, meta.Items[0].Kind,
						loose.Items[0].GetKind())
				}
			}
			for reason, opt := range map[string]client.ReadOption{
				"malformed labels": client.Labels("a=b=c"), "malformed fields": client.Fields("x"),
				"no labels": client.Matching(nil), "an unknown index": client.Index("none", "x"),
			} {
				if err := c.client.List(c.ctx, &corev1.ConfigMapList{}, opt); err == nil {
					t.Errorf("%s: no error", reason)
				}
			}
			err := c.client.List(c.ctx, &corev1.ConfigMapList{}, client.Index("none", "x"))
			if want := map[bool]string{true: "no such index", false: "not watched"}[watched]; !says(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

func TestListByIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		st := c.cache.Stores(configMaps)[0]
		if err := addIndex(st); err != nil {
			t.Fatal(err)
		}
		c.put(foreign("red", "colour", "red"))
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{})
		defer hold.Release()
		if err := c.client.Create(c.ctx, configMap("blue", "colour", "blue")); err != nil {
			t.Fatal(err)
		}
		red := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "red"}}
		if err := client.Modify(c.ctx, c.client, red,
			func(cm *corev1.ConfigMap) error { cm.Data["colour"] = "blue"; return nil }); err != nil {
			t.Fatal(err)
		}
		for colour, want := range map[string]int{"red": 0, "blue": 2} {
			var list corev1.ConfigMapList
			if err := c.client.List(c.ctx, &list, client.Index("colour", colour)); err != nil || len(list.Items) != want {
				t.Errorf("%d %s, %v; want %d", len(list.Items), colour, err, want)
			}
		}
	})
}

// A synced store answers reads, even before its watch is open.
func TestListBeforeTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		c.server.On(apiserver.Match{Verb: "watch"}, apiserver.BlackHole())
		c.put(foreign("red", "colour", "red"))
		h, err := c.cache.Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"), source.NoWatchList())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		if err := addIndex(h.Store); err != nil {
			t.Fatal(err)
		}
		<-h.Synced()
		var list corev1.ConfigMapList
		if err := c.client.List(c.ctx, &list, client.Index("colour", "red")); err != nil || len(list.Items) != 1 {
			t.Errorf("got %d objects, %v; want 1", len(list.Items), err)
		}
		asked := c.requests("get")
		if err := c.client.Get(c.ctx, key("absent"), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
		if n := c.requests("get") - asked; n != 0 {
			t.Errorf("%d requests to the server", n)
		}
	})
}

// Only a store can select by an index. A read without such a store fails, instead of returning all objects.
func TestListByIndexWithoutAStore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		sources []cache.Option
		hold    bool // watches, with which lists begin, get no response
		opts    []client.ReadOption
	}{
		{"not listed yet", nil, true, nil},
		{"another namespace", []cache.Option{cache.Namespaces("b")}, false, []client.ReadOption{client.InNamespace("a")}},
		{"more namespaces", []cache.Option{cache.Namespaces("b")}, false, nil},
		{"a field that only the server can evaluate", nil, false, []client.ReadOption{client.Fields("data.x=y")}},
		{"a live read", nil, false, []client.ReadOption{client.Live()}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{})
				defer c.close()
				if tc.hold {
					c.server.On(apiserver.Match{Verb: "watch"}, apiserver.BlackHole())
				}
				c.put(foreign("red", "colour", "red"))
				h, err := c.cache.Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"), tc.sources...)
				if err != nil {
					t.Fatal(err)
				}
				defer h.Release()
				if err := addIndex(h.Store); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				opts := append(tc.opts, client.Index("colour", "blue"))
				var list corev1.ConfigMapList
				if err := c.client.List(c.ctx, &list, opts...); !errors.Is(err, client.ErrNotWatched) || len(list.Items) > 0 {
					t.Errorf("got %d objects, %v; want ErrNotWatched", len(list.Items), err)
				}
				for cm, err := range client.List[corev1.ConfigMap](c.ctx, c.client, opts...) {
					if !errors.Is(err, client.ErrNotWatched) {
						t.Errorf("got %v, %v; want ErrNotWatched", cm, err)
					}
				}
			})
		})
	}
}
