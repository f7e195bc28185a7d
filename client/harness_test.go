package client_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// cluster is a server, a cache of it and a client, all in one synctest bubble.
type cluster struct {
	t      tester
	ctx    context.Context
	server *apiserver.Server
	cache  *store.Cache
	client *client.Client
	calls  *call.Client
	stop   []func()
}

type setup struct {
	server  apiserver.Options
	options client.Options
	watch   []string // watched kinds of the core group, or Widget
	sources []source.Option
	lazy    bool // do not wait until synced
	hold    bool // watches get no response, from the first one on
	store   store.Options
}

func start(ctx context.Context, t tester, s setup) *cluster {
	t.Helper()
	c := &cluster{t: t, ctx: ctx}
	s.server.Pipe = true
	var err error
	if c.server, err = apiserver.New(s.server); err != nil {
		t.Fatal(err)
	}
	if s.hold {
		c.server.On(apiserver.Match{Verb: "watch"}, apiserver.BlackHole())
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, r := range apiserver.DefaultResources() {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		mapper.AddSpecific(r.GVK(), r.GVR(), schema.GroupVersionResource{
			Group: r.Group, Version: r.Version, Resource: r.Singular,
		}, scope)
	}
	if c.cache, err = store.NewCache(store.CacheOptions{
		Config: c.server.Config(), Scheme: scheme.Scheme, Mapper: mapper, Store: s.store,
	}); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.cache.Run(running) })
	c.stop = append(c.stop, c.server.Close, wg.Wait, cancel)
	for _, kind := range s.watch {
		gvk := schema.GroupVersionKind{Version: "v1", Kind: kind}
		if kind == "Widget" {
			gvk = apiserver.Widgets().GVK()
		}
		h, err := c.cache.Acquire(gvk, s.sources...)
		if err != nil {
			t.Fatal(err)
		}
		c.stop = append(c.stop, h.Release)
		if !s.lazy {
			select {
			case <-h.Synced():
			case <-time.After(testlimit.Wait):
				t.Fatalf("%s is not synced: %+v", kind, h.Statuses())
			}
			for !h.Statuses()[0].Synced { // reported a moment later
				<-time.After(time.Millisecond)
			}
		}
	}
	if c.calls, err = call.New(call.Options{Config: c.server.Config(), Rand: func() float64 { return 1 }}); err != nil {
		t.Fatal(err)
	}
	o := s.options
	o.Call, o.Cache, o.Mapper = c.calls, c.cache, mapper
	if c.client, err = client.New(o); err != nil {
		t.Fatal(err)
	}
	c.stop = append(c.stop, c.calls.Close, c.client.Close)
	return c
}

func (c *cluster) close() {
	for i := len(c.stop) - 1; i >= 0; i-- {
		c.stop[i]()
	}
}

// requests counts the requests to the server without watches and their lists.
func (c *cluster) requests(verbs ...string) int {
	n := 0
	for _, v := range verbs {
		n += c.server.Log().Count(apiserver.Match{Verb: v})
	}
	return n
}

// put changes the server without the client.
func (c *cluster) put(obj runtime.Object) *unstructured.Unstructured {
	c.t.Helper()
	u, err := c.server.Put(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return u
}

// seen waits until the cache shows a version of an object.
func (c *cluster) seen(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, testlimit.Wait)
	defer cancel()
	for _, st := range c.cache.Stores(gvr) {
		if err := st.WaitForNamespace(ctx, u.GetNamespace(), u.GetResourceVersion()); err != nil {
			c.t.Fatal(err)
		}
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func key(name string) client.Key { return client.Key{Namespace: "a", Name: name} }

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	for i := 0; i+1 < len(data); i += 2 {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// foreign returns a config map for Put.
func foreign(name string, data ...string) *corev1.ConfigMap {
	cm := configMap(name, data...)
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return cm
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.fairlead.io/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "a", "name": name},
		"spec":     map[string]any{"size": int64(1)},
	}}
}

func addIndex(st *store.Store) error {
	return store.IndexBy(store.Of[corev1.ConfigMap](st), "colour",
		func(cm *corev1.ConfigMap) []string { return []string{cm.Data["colour"]} })
}

// lastBody returns the body of the last request of a verb.
func lastBody(c *cluster, verb string) string {
	reqs := c.server.Log().Select(apiserver.Match{Verb: verb})
	if len(reqs) == 0 {
		return ""
	}
	return string(reqs[len(reqs)-1].Body)
}
