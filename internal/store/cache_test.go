package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// cluster serves one ConfigMap, and watches without events.
type cluster struct {
	mu      sync.Mutex
	open    map[string]int // open watches by path and the query parameters that distinguish them
	changed chan struct{}
	accepts []string
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w,
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"ns","uid":"u1","resourceVersion":"5"}}]}`)
		return
	}
	c.note(r, 1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
	c.note(r, -1)
}

func (c *cluster) note(r *http.Request, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[r.URL.Path+"?"+r.URL.Query().Get("labelSelector")] += n
	c.accepts = append(c.accepts, r.Header.Get("Accept"))
	close(c.changed)
	c.changed = make(chan struct{})
}

// watches waits until exactly these watches are open.
func (c *cluster) watches(t *testing.T, want map[string]int) {
	t.Helper()
	deadline := time.After(testlimit.Wait)
	for {
		c.mu.Lock()
		ok := true
		for k, n := range want {
			ok = ok && c.open[k] == n
		}
		for k, n := range c.open {
			ok = ok && want[k] == n
		}
		got, changed := fmt.Sprint(c.open), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("open watches %s, want %v", got, want)
		}
	}
}

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func newCache(t *testing.T, linger time.Duration) (*store.Cache, *cluster, context.CancelFunc) {
	t.Helper()
	cache, c := idleCache(t, linger)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- cache.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return cache, c, sync.OnceFunc(stop)
}

// idleCache is newCache without Run.
func idleCache(t *testing.T, linger time.Duration) (*store.Cache, *cluster) {
	t.Helper()
	c := &cluster{open: map[string]int{}, changed: make(chan struct{})}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	scheme := kruntime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(configMapKind, meta.RESTScopeNamespace)
	cache, err := store.NewCache(store.CacheOptions{
		Config: &rest.Config{Host: srv.URL}, Scheme: scheme, Mapper: mapper, Linger: linger,
		Source: []source.Option{source.NoWatchList()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cache, c
}

// A store whose watch fails for good is not served any more, and Run returns the error.
func TestCacheWhoseWatchFails(t *testing.T) {
	t.Parallel()
	cache, _ := idleCache(t, -1)
	h, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	store.Break(h.Store)
	if err := cache.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot watch configmaps: ") {
		t.Errorf("Run: %v", err)
	}
	if stores := cache.Stores(corev1.SchemeGroupVersion.WithResource("configmaps")); len(stores) != 0 {
		t.Errorf("the cache still serves %d stores", len(stores))
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	cache, cluster, stop := newCache(t, -1)
	defer stop()
	one, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	two, err := store.AcquireFor[corev1.ConfigMap](cache)
	if err != nil {
		t.Fatal(err)
	}
	if one.Store != two.Store {
		t.Error("two equal requests do not share a store")
	}
	<-one.Synced()
	if o, err := store.Of[corev1.ConfigMap](one.Store).Get(store.Key{Namespace: "ns", Name: "a"}); err != nil ||
		o.UID != "u1" {
		t.Errorf("read %v, %v", o, err)
	}
	if err := one.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	all, some := "/api/v1/configmaps?", "/api/v1/namespaces/ns/configmaps?app=web"
	cluster.watches(t, map[string]int{all: 1})
	three, err := cache.Acquire(configMapKind, source.Namespaces("ns"), source.Labels("app=web"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.watches(t, map[string]int{all: 1, some: 1})
	if n := len(cache.Stores(one.Options().Resource)); n != 2 {
		t.Errorf("%d stores, want 2", n)
	}
	one.Release()
	one.Release()
	three.Release()
	cluster.watches(t, map[string]int{all: 1, some: 0})
	two.Release()
	cluster.watches(t, map[string]int{all: 0, some: 0})
	if n := len(cache.Stores(schema.GroupVersionResource{})); n != 0 {
		t.Errorf("%d stores, want none", n)
	}
	stop()
	if _, err := cache.Acquire(configMapKind); !errors.Is(err, store.ErrClosed) {
		t.Errorf("error %v after Close, want closed", err)
	}
}

func TestCacheLingers(t *testing.T) {
	t.Parallel()
	cache, cluster, stop := newCache(t, time.Hour)
	defer stop()
	one, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	cluster.watches(t, map[string]int{"/api/v1/configmaps?": 1})
	one.Release()
	two, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	if one.Store != two.Store {
		t.Error("a store that was released for a moment is replaced")
	}
	two.Release()
	stop()
	cluster.watches(t, map[string]int{"/api/v1/configmaps?": 0})
}

func TestCacheEncodings(t *testing.T) {
	t.Parallel()
	cache, cluster, stop := newCache(t, -1)
	defer stop()
	typed, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	cluster.watches(t, map[string]int{"/api/v1/configmaps?": 1})
	generic, err := cache.Open(store.Request{Kind: configMapKind, Unstructured: true})
	if err != nil {
		t.Fatal(err)
	}
	cluster.watches(t, map[string]int{"/api/v1/configmaps?": 2})
	if typed.Store == generic.Store {
		t.Error("unstructured readers got the protobuf store")
	}
	again, err := cache.Acquire(configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	if again.Store != generic.Store {
		t.Error("a typed reader does not share the JSON store")
	}
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if a := cluster.accepts; len(a) < 2 || !strings.Contains(a[0], "protobuf") || strings.Contains(a[1], "protobuf") {
		t.Errorf("asked for %q, want protobuf first, then JSON", a)
	}
}

func TestCacheErrors(t *testing.T) {
	t.Parallel()
	cache, _, stop := newCache(t, -1)
	defer stop()
	if _, err := cache.Acquire(schema.GroupVersionKind{Version: "v1", Kind: "Nothing"}); !meta.IsNoMatchError(err) {
		t.Errorf("error %v, want no match", err)
	}
	if _, err := store.AcquireFor[struct{}](cache); err == nil {
		t.Error("a store for a type outside the API")
	}
	if _, err := store.NewCache(store.CacheOptions{}); err == nil {
		t.Error("a cache without a config")
	}
}

// Stores is called with every read, so it takes no lock and allocates nothing. The stores with the most objects come
// first.
func TestCacheLookup(t *testing.T) { // not parallel: it counts allocations
	cache, _ := idleCache(t, -1) // a running cache would add allocations
	var handles []*store.Handle
	for _, options := range [][]source.Option{
		{source.Labels("app=web")}, {source.Namespaces("ns")}, nil, {source.Namespaces("ns"), source.Labels("app=web")},
	} {
		h, err := cache.Acquire(configMapKind, options...)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	gvr := handles[0].Options().Resource
	var found store.Found
	got := found.In(cache, gvr)
	if len(got) != 4 || got[0] != handles[2].Store || got[1] != handles[1].Store || got[2].Complete() ||
		got[3].Complete() {
		t.Errorf("%d stores, or not in the order of their size", len(got))
	}
	cache.Stores(gvr)[0] = nil // a copy
	if n := testing.AllocsPerRun(100, func() { got = cache.Lookup(gvr) }); n != 0 || got[0] == nil {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { got = found.In(cache, gvr) }); n != 0 || got[0] == nil {
		t.Errorf("%v allocations of a caller that asks repeatedly", n)
	}
	handles[2].Release()
	if again := found.In(cache, gvr); !slices.Equal(again, cache.Lookup(gvr)) {
		t.Errorf("a caller that asks repeatedly gets %d stores, one of them released", len(again))
	}
	if got := cache.Lookup(gvr); len(got) != 3 || got[0] != handles[1].Store {
		t.Errorf("%d stores after one was released", len(got))
	}
	if got := cache.Lookup(schema.GroupVersionResource{Resource: "pods"}); len(got) != 0 {
		t.Errorf("%d stores of an unwatched resource", len(got))
	}
}
