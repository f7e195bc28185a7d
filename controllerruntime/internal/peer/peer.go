// Package peer has what the tests of controllerruntime share: caches and clients of controller-runtime as it is, and
// with ours in their place.
package peer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime"
)

// Peer is controller-runtime as it is, or with our two lines.
type Peer struct {
	Name      string
	NewCache  cache.NewCacheFunc
	NewClient client.NewClientFunc
}

// The two peers.
var (
	Stock = Peer{"stock", cache.New, client.New}
	Ours  = Peer{"adapter", controllerruntime.NewCache, controllerruntime.NewClient}
)

// With returns our peer with options.
func With(o controllerruntime.Options) Peer { return Peer{"options", o.NewCache, o.NewClient} }

// Alike runs a test with both peers: what it asserts holds for both.
func Alike(t *testing.T, test func(t *testing.T, p Peer)) {
	t.Parallel()
	for _, p := range []Peer{Stock, Ours} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// World is a cache and a client of one peer, in a namespace.
type World struct {
	T         *testing.T
	Ctx       context.Context //nolint:containedctx // it lives as long as the test, and ends with a deadline
	Namespace string
	Cache     cache.Cache
	Client    client.Client // reads the cache, writes to the server
	Live      client.Client
	Stop      func() // of Start
}

// Open makes the cache and the client of a peer, and does not start the cache.
func (p Peer) Open(t *testing.T, cfg *rest.Config, namespace string, opts cache.Options) *World {
	t.Helper()
	w := &World{T: t, Namespace: namespace}
	var cancel func()
	w.Ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	hc, err := rest.HTTPClientFor(cfg)
	Must(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(hc.Transport) })
	if opts.HTTPClient == nil {
		opts.HTTPClient = hc
	}
	if opts.DefaultNamespaces == nil && opts.ByObject == nil {
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	w.Cache, err = p.NewCache(cfg, opts)
	Must(t, err)
	w.Client, err = p.NewClient(cfg, client.Options{
		HTTPClient: hc, Scheme: opts.Scheme, Cache: &client.CacheOptions{Reader: w.Cache, Unstructured: true},
	})
	Must(t, err)
	apart, err := rest.HTTPClientFor(cfg) // what goes through hc is visible in the cache
	Must(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(apart.Transport) })
	w.Live, err = client.New(cfg, client.Options{HTTPClient: apart, Scheme: opts.Scheme})
	Must(t, err)
	return w
}

// Start has the cache run until the test ends, or until Stop.
func (w *World) Start() {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Cache.Start(ctx) }()
	var once sync.Once
	w.Stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				w.T.Errorf("the cache ended with %v", err)
			}
		})
	}
	w.T.Cleanup(w.Stop)
	if !w.Cache.WaitForCacheSync(w.Ctx) {
		w.T.Fatal("the cache has not synced")
	}
}

// Informer returns the informer of a kind.
func (w *World) Informer(obj client.Object) cache.Informer {
	w.T.Helper()
	in, err := w.Cache.GetInformer(w.Ctx, obj)
	Must(w.T, err)
	return in
}

// ConfigMap is one of the namespace of the test.
func (w *World) ConfigMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// Create makes objects behind the back of the client under test.
func (w *World) Create(objs ...client.Object) {
	w.T.Helper()
	for _, obj := range objs {
		Must(w.T, w.Live.Create(w.Ctx, obj))
	}
}

// Eventually waits until a condition holds; it is asked often, since nothing else tells.
func (w *World) Eventually(what string, holds func() bool) {
	w.T.Helper()
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.Ctx.Done():
			w.T.Fatal("in vain it was waited until", what)
		}
	}
}

// Has says whether the cache has a config map of the namespace of the test.
func (w *World) Has(name string) bool {
	return w.Cache.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, &corev1.ConfigMap{}) == nil
}

// Names returns what a list has, in order.
func (w *World) Names(opts ...client.ListOption) []string {
	w.T.Helper()
	var out corev1.ConfigMapList
	Must(w.T, w.Cache.List(w.Ctx, &out, opts...))
	names := []string{}
	for _, cm := range out.Items {
		names = append(names, cm.Name)
	}
	slices.Sort(names)
	return names
}

// Must fails the test at an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Events is a handler that keeps what it was given, in words.
type Events struct {
	C chan string
}

// NewEvents returns a handler that was given nothing yet.
func NewEvents() Events { return Events{make(chan string, 1000)} }

// OnAdd implements cache.ResourceEventHandler.
func (e Events) OnAdd(obj any, initial bool) {
	if initial {
		e.C <- "initial " + describe(obj)
		return
	}
	e.C <- "add " + describe(obj)
}

// OnUpdate implements cache.ResourceEventHandler.
func (e Events) OnUpdate(old, obj any) { e.C <- "update " + describe(old) + " to " + describe(obj) }

// OnDelete implements cache.ResourceEventHandler.
func (e Events) OnDelete(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		e.C <- "gone " + describe(unknown.Obj)
		return
	}
	e.C <- "delete " + describe(obj)
}

func describe(obj any) string {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return fmt.Sprintf("%s %s", o.Name, o.Data["v"])
	case client.Object:
		return fmt.Sprintf("%T %s", o, o.GetName())
	}
	return fmt.Sprintf("%T", obj)
}

// Want takes the next event, and compares it.
func (w *World) Want(e Events, want string) {
	w.T.Helper()
	select {
	case got := <-e.C:
		if got != want {
			w.T.Fatalf("the handler was given %q, want %q", got, want)
		}
	case <-w.Ctx.Done():
		w.T.Fatalf("the handler was not given %q", want)
	}
}

// Versions returns the resource versions of the objects of a list, by their names.
func Versions(t *testing.T, list client.ObjectList) map[string]string {
	t.Helper()
	out := map[string]string{}
	Must(t, meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		out[m.GetName()] = m.GetResourceVersion()
		return err
	}))
	return out
}
