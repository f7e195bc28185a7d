package bench_test

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/scenario"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// informerSubject is client-go's SharedIndexInformer as a subject of the scenarios, with typed objects from protobuf or
// dynamic ones from JSON.
type informerSubject struct{ dynamic bool }

func (s informerSubject) Name() string {
	if s.dynamic {
		return "client-go dynamic"
	}
	return "client-go typed"
}

func (s informerSubject) Start(cfg scenario.Config) (scenario.Instance, error) {
	namespace := ""
	switch len(cfg.Namespaces) {
	case 0:
	case 1:
		namespace = cfg.Namespaces[0]
	default:
		return nil, errOneScope
	}
	rc := rest.CopyConfig(cfg.REST)
	if !s.dynamic {
		rc.ContentType = "application/vnd.kubernetes.protobuf"
		rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	httpClient, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, err
	}
	lw := &cache.ListWatch{}
	tweak := func(o metav1.ListOptions) metav1.ListOptions { o.LabelSelector = cfg.Labels; return o }
	var example runtime.Object = &corev1.ConfigMap{}
	if s.dynamic {
		client, err := dynamic.NewForConfigAndClient(rc, httpClient)
		if err != nil {
			return nil, err
		}
		example = &unstructured.Unstructured{}
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(cfg.Resource).Namespace(namespace).List(ctx, tweak(o))
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(cfg.Resource).Namespace(namespace).Watch(ctx, tweak(o))
		}
	} else {
		client, err := kubernetes.NewForConfigAndClient(rc, httpClient)
		if err != nil {
			return nil, err
		}
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().ConfigMaps(namespace).List(ctx, tweak(o))
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().ConfigMaps(namespace).Watch(ctx, tweak(o))
		}
	}
	var lister cache.ListerWatcher = lw
	if cfg.NoWatchList {
		lister = cache.ToListWatcherWithWatchListSemantics(lw, listOnly{})
	}
	i := &informer{
		cfg: cfg, done: make(chan struct{}),
		informer: cache.NewSharedIndexInformerWithOptions(lister, example,
			cache.SharedIndexInformerOptions{ResyncPeriod: cfg.Resync}),
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.probe = i.subscribe("probe")
	go func() {
		defer close(i.done)
		i.informer.RunWithContext(i.ctx)
		utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	}()
	return i, nil
}

// listOnly disables WatchList.
type listOnly struct{}

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

const errOneScope = scenario.NotOffered("one namespace or all")

type informer struct {
	cfg      scenario.Config
	informer cache.SharedIndexInformer
	ctx      context.Context // the context of the run: it also ends blocked handlers
	cancel   context.CancelFunc
	done     chan struct{}
	waits    sync.WaitGroup
	probe    *informerSubscriber // is never blocked; other subscribers wait for the events that it alone has (W10)
}

func (i *informer) Subscribe(name string) scenario.Subscriber { return i.subscribe(name) }

func (i *informer) subscribe(name string) *informerSubscriber {
	s := &informerSubscriber{i: i, rec: watchtest.Recording{
		Name: name, Filtered: i.cfg.Labels != "" || len(i.cfg.Namespaces) > 0,
	}}
	reg, err := i.informer.AddEventHandler(s)
	if err != nil {
		panic(err) // the informer is stopped, which is a mistake of the script
	}
	s.reg = reg
	// SYNCED is recorded when the handler reports that it has synced.
	i.waits.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for !reg.HasSynced() {
			select {
			case <-tick.C:
			case <-i.ctx.Done():
				return
			}
		}
		s.synced()
	})
	return s
}

func (i *informer) Cached() map[string]watchtest.State {
	out := map[string]watchtest.State{}
	for _, obj := range i.informer.GetStore().List() {
		m := obj.(metav1.Object)
		out[m.GetNamespace()+"/"+m.GetName()] = stateOf(m)
	}
	return out
}

func (i *informer) Status(string) (source.Status, bool) { return source.Status{}, false }

func (i *informer) Stop() {
	i.cancel()
	<-i.done
	i.waits.Wait()
}

type informerSubscriber struct {
	i   *informer
	reg cache.ResourceEventHandlerRegistration

	mu      sync.Mutex
	rec     watchtest.Recording
	initial int
	gate    chan struct{}
}

func stateOf(m metav1.Object) watchtest.State {
	return watchtest.State{UID: string(m.GetUID()), Version: m.GetResourceVersion()}
}

func (s *informerSubscriber) OnAdd(obj any, initial bool) {
	s.given(store.Added, obj, nil, initial, false)
}

func (s *informerSubscriber) OnUpdate(old, obj any) {
	typ := store.Modified
	if stateOf(old.(metav1.Object)) == stateOf(obj.(metav1.Object)) && s.i.cfg.Resync > 0 {
		typ = store.Sync
	}
	s.given(typ, obj, old, false, false)
}

func (s *informerSubscriber) OnDelete(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		s.given(store.Deleted, gone.Obj, gone.Obj, false, true)
		return
	}
	s.given(store.Deleted, obj, nil, false, false)
}

func (s *informerSubscriber) given(typ store.EventType, obj, prior any, initial, inferred bool) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-s.i.ctx.Done():
			return
		}
	}
	m := obj.(metav1.Object)
	e := watchtest.Event{
		At: time.Now(), Type: typ, Key: m.GetNamespace() + "/" + m.GetName(), Object: stateOf(m),
		Initial: initial, Inferred: inferred, Looked: true,
	}
	if cached, ok, err := s.i.informer.GetStore().GetByKey(e.Key); ok && err == nil {
		e.Cached = stateOf(cached.(metav1.Object))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if typ == store.Deleted {
		e.Prior = s.last(e.Key) // an informer does not report it
	} else if prior != nil {
		e.Prior = stateOf(prior.(metav1.Object))
	}
	if initial {
		s.initial++
	}
	s.rec.Events = append(s.rec.Events, e)
}

// last returns the last state of a key. The caller holds the mutex.
func (s *informerSubscriber) last(key string) watchtest.State {
	for i := len(s.rec.Events) - 1; i >= 0; i-- {
		if e := s.rec.Events[i]; e.Key == key {
			if e.Type == store.Deleted {
				return watchtest.State{}
			}
			return e.Object
		}
	}
	return watchtest.State{}
}

func (s *informerSubscriber) synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Events = append(s.rec.Events, watchtest.Event{At: time.Now(), Type: store.Synced, Count: s.initial})
}

func (s *informerSubscriber) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rec.Events)
}

func (s *informerSubscriber) Recording() watchtest.Recording {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.rec
	out.Events = append([]watchtest.Event(nil), out.Events...)
	return out
}

func (s *informerSubscriber) Block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == nil {
		s.gate = make(chan struct{})
	}
}

func (s *informerSubscriber) Unblock() {
	waiting := s.i.probe.count() - s.count()
	keys := len(s.i.informer.GetStore().ListKeys())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == nil {
		return
	}
	s.rec.MaxWaiting, s.rec.Keys = max(s.rec.MaxWaiting, waiting), max(s.rec.Keys, keys)
	close(s.gate)
	s.gate = nil
}

func (s *informerSubscriber) Leave() {
	if err := s.i.informer.RemoveEventHandler(s.reg); err != nil {
		panic(err)
	}
}
