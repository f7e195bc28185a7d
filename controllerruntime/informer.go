package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// informer is a cache.SharedIndexInformer over a store. Its methods are safe for concurrent use.
type informer struct {
	name       string       // for logs, as in client-go
	typ        reflect.Type // of the objects that it returns, not a pointer
	example    runtime.Object
	resync     time.Duration
	holdWrites string // writer whose own events are filtered; "": none
	open       func(cache.TransformFunc) (*store.Handle, error)

	synced   chan struct{}
	handling sync.WaitGroup // goroutines of registrations
	indexing sync.Mutex     // serializes additions of indexes; locked before mu
	from     atomic.Pointer[origin]

	mu            sync.Mutex
	started       bool
	stopped       bool
	transform     cache.TransformFunc
	onError       cache.WatchErrorHandlerWithContext
	indexes       map[string]index
	registrations map[*registration]struct{}
	handle        *store.Handle // nil before it runs
}

// origin is the state that an informer reads.
type origin struct {
	store *store.Store
	last  *store.Snapshot // state at the stop; nil while it runs
}

var _ cache.SharedIndexInformer = (*informer)(nil)

var errStarted = errors.New("informer has already started")

// newInformer returns an informer of objects of the type of example, which is not modified.
func newInformer(
	example runtime.Object, resync time.Duration, indexers cache.Indexers, holdWrites string,
	open func(cache.TransformFunc) (*store.Handle, error),
) *informer {
	in := &informer{
		name: fmt.Sprintf("SharedIndexInformer %T", example), typ: reflect.TypeOf(example).Elem(), example: example,
		resync: resync, holdWrites: holdWrites, open: open, synced: make(chan struct{}),
		indexes: map[string]index{}, registrations: map[*registration]struct{}{},
	}
	in.indexes, _ = in.newIndexesLocked(indexers) // cannot fail: there are no indexes to conflict with
	return in
}

// AddEventHandler implements cache.SharedInformer.
func (in *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return in.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (in *informer) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return in.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
}

// minResync is the shortest resync period, as in client-go.
const minResync = time.Second

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (in *informer) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	log, resync := klog.Background(), in.resync
	if o.Logger != nil {
		log = *o.Logger
	}
	if o.ResyncPeriod != nil {
		resync = *o.ResyncPeriod
	}
	if resync = max(resync, 0); resync > 0 {
		resync = max(resync, minResync)
	}
	if in.resync == 0 { // as in client-go, there are then no resyncs at all
		resync = 0
	}
	r := newRegistration(in, h, log, resync)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return nil, fmt.Errorf("cannot add handler %T: %s has stopped", h, in.name)
	}
	in.registrations[r] = struct{}{}
	if in.handle != nil {
		r.follow(in.handle.Store)
	}
	return r, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (in *informer) RemoveEventHandler(reg cache.ResourceEventHandlerRegistration) error {
	r, ok := reg.(*registration)
	if !ok || r.in != in {
		return fmt.Errorf("cannot remove handler: its registration %T is not of this informer", reg)
	}
	in.mu.Lock()
	delete(in.registrations, r)
	in.mu.Unlock()
	r.remove()
	return nil
}

// GetStore implements cache.SharedInformer.
func (in *informer) GetStore() cache.Store { return indexer{in} }

// GetIndexer implements cache.SharedIndexInformer.
func (in *informer) GetIndexer() cache.Indexer { return indexer{in} }

// GetController implements cache.SharedInformer.
func (in *informer) GetController() cache.Controller { return controller{in} }

// HasSynced implements cache.SharedInformer.
func (in *informer) HasSynced() bool { return cache.IsDone(in.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (in *informer) HasSyncedChecker() cache.DoneChecker {
	return checker{func() string { return in.name }, in.synced}
}

// LastSyncResourceVersion implements cache.SharedInformer.
func (in *informer) LastSyncResourceVersion() string {
	if from := in.from.Load(); from != nil {
		return from.store.Version()
	}
	return ""
}

// SetWatchErrorHandler implements cache.SharedInformer.
func (in *informer) SetWatchErrorHandler(h cache.WatchErrorHandler) error {
	return in.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { h(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer. The handler is called when the watch starts to fail,
// and when the reason of the failure changes.
func (in *informer) SetWatchErrorHandlerWithContext(h cache.WatchErrorHandlerWithContext) error {
	return in.configure(func() { in.onError = h })
}

// SetTransform implements cache.SharedInformer. fn is called each time an object is decoded.
func (in *informer) SetTransform(fn cache.TransformFunc) error {
	return in.configure(func() { in.transform = fn })
}

// configure changes a setting that is fixed after the start.
func (in *informer) configure(change func()) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.started {
		return errStarted
	}
	change()
	return nil
}

// IsStopped implements cache.SharedInformer.
func (in *informer) IsStopped() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.stopped
}

// Run implements cache.SharedInformer.
func (in *informer) Run(stop <-chan struct{}) { in.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext implements cache.SharedInformer.
func (in *informer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	st := in.start(ctx)
	if st == nil {
		return
	}
	defer in.stop()
	statuses := st.WatchStatus()
	defer statuses.Close()
	synced, changes := st.Synced(), statuses.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-synced:
			synced = nil
			close(in.synced)
		case status, ok := <-changes:
			switch {
			case !ok: // the store was closed
				changes = nil
			case status.Phase == source.Degraded && status.Err != nil:
				in.failed(ctx, status.Err)
			}
		}
	}
}

// start opens the store. It returns nil if that is not possible.
func (in *informer) start(ctx context.Context) *store.Store {
	in.mu.Lock()
	again, transform := in.started, in.transform
	in.started = true
	in.mu.Unlock()
	if again {
		klog.FromContext(ctx).Info("an informer can be run only once", "informer", in.name)
		return nil
	}
	handle := in.opened(ctx, transform)
	in.indexing.Lock()
	defer in.indexing.Unlock()
	if handle == nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.stopped = true
		return nil
	}
	if err := in.fill(handle.Store, in.indexes); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "cannot index all objects", "informer", in.name)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.handle = handle
	in.from.Store(&origin{store: handle.Store})
	for r := range in.registrations {
		r.follow(handle.Store)
	}
	return handle.Store
}

// opened opens the store and retries while the server does not serve the kind. It returns nil when ctx is done or the
// error is permanent.
func (in *informer) opened(ctx context.Context, transform cache.TransformFunc) *store.Handle {
	retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Minute}
	for {
		handle, err := in.open(transform)
		if err == nil {
			return handle
		}
		utilruntime.HandleErrorWithContext(ctx, err, "cannot open the store of an informer", "informer", in.name)
		if !meta.IsNoMatchError(err) {
			return nil
		}
		rest := time.NewTimer(retry.Step())
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return nil
		}
	}
}

// stop releases the store after the handlers have ended.
func (in *informer) stop() {
	in.mu.Lock()
	in.stopped = true
	for r := range in.registrations {
		r.remove()
	}
	clear(in.registrations)
	in.mu.Unlock()
	in.handling.Wait()

	in.indexing.Lock()
	defer in.indexing.Unlock()
	last := in.handle.Snapshot()
	in.from.Store(&origin{in.handle.Store, &last})
	for _, x := range in.indexes {
		if x.name != "" {
			in.handle.RemoveIndex(x.name)
		}
	}
	in.handle.Release()
}

// failed passes an error to the watch error handler.
func (in *informer) failed(ctx context.Context, err error) {
	in.mu.Lock()
	h := in.onError
	in.mu.Unlock()
	if h == nil {
		h = cache.DefaultWatchErrorHandler
	}
	h(ctx, cache.NewNamedReflector(in.name, nil, in.example, indexer{in}, 0), err)
}

// snapshot returns the current content. ok is false before the store is open.
func (in *informer) snapshot() (v store.Snapshot, ok bool) {
	from := in.from.Load()
	switch {
	case from == nil:
		return store.Snapshot{}, false
	case from.last != nil:
		return *from.last, true
	}
	return from.store.Snapshot(), true
}

// decode returns the object of a record, shared and READ-ONLY. other is another version of it, or nil.
func (in *informer) decode(r, other *store.Record) (any, error) { return r.AsLike(other, in.typ) }

// object is like decode, but reports an error and returns nil.
func (in *informer) object(r, other *store.Record) any {
	if r == nil {
		return nil
	}
	obj, err := in.decode(r, other)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("%s: %w", in.name, err))
		return nil
	}
	return obj
}

// given is object for a handler. As with client-go, a typed object has no apiVersion and kind.
func (in *informer) given(r, other *store.Record) any {
	obj := in.object(r, other)
	switch o := obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
	case runtime.Object:
		if o.GetObjectKind().GroupVersionKind().Empty() {
			return obj
		}
		bare := reflect.New(reflect.TypeOf(obj).Elem())
		bare.Elem().Set(reflect.ValueOf(obj).Elem())
		obj = bare.Interface()
		obj.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj
}

// controller is the result of GetController. As in client-go, it is informational only.
type controller struct{ in *informer }

func (c controller) Run(<-chan struct{})                 {}
func (c controller) RunWithContext(context.Context)      {}
func (c controller) HasSynced() bool                     { return c.in.HasSynced() }
func (c controller) HasSyncedChecker() cache.DoneChecker { return c.in.HasSyncedChecker() }
func (c controller) LastSyncResourceVersion() string     { return c.in.LastSyncResourceVersion() }
