package controllerruntime

import (
	"fmt"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/store"
)

// crashPause is the pause of a handler after a panic if utilruntime does not end the process, as in client-go.
const crashPause = time.Second

// registration is one event handler of an informer. It has a goroutine only while events are waiting.
type registration struct {
	in      *informer
	handler cache.ResourceEventHandler
	log     klog.Logger
	resync  time.Duration

	synced  chan struct{} // closed when the handler has handled the initial objects
	removal chan struct{} // closed by remove
	over    chan struct{} // closed after remove, when the handler has returned

	mu       sync.Mutex
	drainer  *store.Drainer // nil before the informer runs
	handling bool
	removed  bool
}

func newRegistration(in *informer, h cache.ResourceEventHandler, log klog.Logger, resync time.Duration) *registration {
	return &registration{
		in: in, handler: h, log: log, resync: resync,
		synced: make(chan struct{}), removal: make(chan struct{}), over: make(chan struct{}),
	}
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return cache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() cache.DoneChecker {
	return checker{func() string { return fmt.Sprintf("%s + event handler %T", r.in.name, r.handler) }, r.synced}
}

// ShutdownChan returns a channel that is closed when the handler was removed and has returned.
// cache.ShutDownEventHandler waits for it.
func (r *registration) ShutdownChan() <-chan struct{} { return r.over }

// follow subscribes to the events of a store.
func (r *registration) follow(st *store.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed {
		return
	}
	r.drainer = st.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{
			Name: r.in.name, Resync: r.resync, HoldWrites: r.in.holdWrites, PrimaryOf: noPrimary,
		},
		Consume: r.consume,
		Owner:   &r.in.handling,
	})
	r.drainer.Start()
}

// noPrimary attributes every object to no primary object, since writes of controller-runtime's client have none.
func noPrimary(*store.Record) (store.Key, bool) { return store.Key{}, true }

// consume passes a batch to the handler.
func (r *registration) consume(events []store.Event) (more bool) {
	if !r.enter() {
		return false
	}
	defer r.leave()
	for i := range events {
		select {
		case <-r.removal:
			return false
		default:
			r.give(&events[i])
		}
	}
	return true
}

func (r *registration) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handling = !r.removed
	return r.handling
}

func (r *registration) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handling = false
	if r.removed {
		close(r.over)
	}
}

// remove ends the delivery. The handler finishes its current event.
func (r *registration) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed {
		return
	}
	r.removed = true
	close(r.removal)
	if !r.handling {
		close(r.over)
	}
	if r.drainer != nil {
		r.drainer.Close()
	}
}

// give calls the handler. A panic ends the process; if utilruntime is configured not to, the event is lost.
func (r *registration) give(e *store.Event) {
	if e.Type == store.Synced {
		close(r.synced)
		return
	}
	defer func() {
		if p := recover(); p != nil { // the drainer would recover it
			go panic(p)
			select {}
		}
	}()
	if !r.survives(e) {
		rest := time.NewTimer(crashPause)
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-r.removal:
		}
	}
}

// survives calls the handler and reports whether it did not panic.
func (r *registration) survives(e *store.Event) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(r.log)
	r.call(e)
	return true
}

func (r *registration) call(e *store.Event) {
	obj := r.in.given(e.Object, e.Prior)
	switch e.Type {
	case store.Added:
		if obj != nil {
			r.handler.OnAdd(obj, e.Initial)
		}
	case store.Modified, store.Sync:
		prior := obj
		if e.Type == store.Modified {
			prior = r.in.given(e.Prior, e.Object)
		}
		switch {
		case obj == nil:
		case prior == nil: // undecodable before, so the handler did not receive it
			r.handler.OnAdd(obj, false)
		default:
			r.handler.OnUpdate(prior, obj)
		}
	case store.Deleted:
		switch {
		case e.Inferred:
			r.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: e.Key.String(), Obj: obj})
		case obj != nil:
			r.handler.OnDelete(obj)
		}
	}
}

// checker implements cache.DoneChecker.
type checker struct {
	name func() string
	done <-chan struct{}
}

func (c checker) Name() string          { return c.name() }
func (c checker) Done() <-chan struct{} { return c.done }
