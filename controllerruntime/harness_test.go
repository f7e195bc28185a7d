package controllerruntime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/controllerruntime"
)

var env clustertest.Env

func TestMain(m *testing.M) {
	// One of them compares the times of two errors, of which one may be on a fake clock.
	utilruntime.ErrorHandlers = nil //nolint:reassign // it is how upstream has it changed
	goleak.VerifyTestMain(env.Main(m),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"), // of metadata informers, stock
		// Of controller-runtime, for a handler that is removed, or ends with its cache, before it has synced.
		goleak.IgnoreTopFunction(
			"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1",
		),
	)
}

// peer is controller-runtime as it is, or with our two lines.
type peer struct {
	name      string
	newCache  cache.NewCacheFunc
	newClient client.NewClientFunc
}

var (
	stock = peer{"stock", cache.New, client.New}
	ours  = peer{"adapter", controllerruntime.NewCache, controllerruntime.NewClient}
)

// alike runs a test with both peers: what it asserts holds for both.
func alike(t *testing.T, test func(t *testing.T, p peer)) {
	t.Parallel()
	for _, p := range []peer{stock, ours} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// world is a cache and a client of one peer, in a namespace of the test.
type world struct {
	t         *testing.T
	ctx       context.Context // of what a test does; it ends with a deadline
	namespace string
	cache     cache.Cache
	client    client.Client // reads the cache, writes to the server
	live      client.Client
	stop      func()
}

// open makes the cache and the client of a peer, and does not start the cache.
func (p peer) open(t *testing.T, opts cache.Options) *world {
	t.Helper()
	return p.openAt(t, env.Config(t), env.Namespace(t), opts)
}

// openAt is open with a server and a namespace.
func (p peer) openAt(t *testing.T, cfg *rest.Config, namespace string, opts cache.Options) *world {
	t.Helper()
	w := &world{t: t, namespace: namespace}
	var cancel func()
	w.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	hc, err := rest.HTTPClientFor(cfg)
	must(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(hc.Transport) })
	if opts.HTTPClient == nil {
		opts.HTTPClient = hc
	}
	if opts.DefaultNamespaces == nil && opts.ByObject == nil {
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	w.cache, err = p.newCache(cfg, opts)
	must(t, err)
	w.client, err = p.newClient(cfg, client.Options{
		HTTPClient: hc, Scheme: opts.Scheme, Cache: &client.CacheOptions{Reader: w.cache, Unstructured: true},
	})
	must(t, err)
	w.live, err = client.New(cfg, client.Options{HTTPClient: hc, Scheme: opts.Scheme})
	must(t, err)
	return w
}

// start is open, and has the cache run until the test ends, or until stop.
func (p peer) start(t *testing.T, opts cache.Options) *world {
	t.Helper()
	w := p.open(t, opts)
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.cache.Start(ctx) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				w.t.Errorf("the cache ended with %v", err)
			}
		})
	}
	w.t.Cleanup(w.stop)
	if !w.cache.WaitForCacheSync(w.ctx) {
		w.t.Fatal("the cache has not synced")
	}
}

// informer returns the informer of a kind.
func (w *world) informer(obj client.Object) cache.Informer {
	w.t.Helper()
	in, err := w.cache.GetInformer(w.ctx, obj)
	must(w.t, err)
	return in
}

// configMap is one of the namespace of the test.
func (w *world) configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// create makes objects behind the back of the client under test.
func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		must(w.t, w.live.Create(w.ctx, obj))
	}
}

// eventually waits until a condition holds; it is asked often, since nothing else tells.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.ctx.Done():
			w.t.Fatal("in vain it was waited until", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// events are what a handler was given, in words.
type events struct {
	c chan string
}

func newEvents() events { return events{make(chan string, 1000)} }

func (e events) OnAdd(obj any, initial bool) {
	if initial {
		e.c <- "initial " + describe(obj)
		return
	}
	e.c <- "add " + describe(obj)
}

func (e events) OnUpdate(old, obj any) { e.c <- "update " + describe(old) + " to " + describe(obj) }

func (e events) OnDelete(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		e.c <- "gone " + describe(unknown.Obj)
		return
	}
	e.c <- "delete " + describe(obj)
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

// want takes the next event, and compares it.
func (w *world) want(e events, want string) {
	w.t.Helper()
	select {
	case got := <-e.c:
		if got != want {
			w.t.Fatalf("the handler was given %q, want %q", got, want)
		}
	case <-w.ctx.Done():
		w.t.Fatalf("the handler was not given %q", want)
	}
}

// versions returns the resource versions of the objects of a list, by their names.
func versions(t *testing.T, list client.ObjectList) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		out[m.GetName()] = m.GetResourceVersion()
		return err
	}))
	return out
}
