package observe

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Observer is a declared observer.
type Observer struct {
	selector Selector
	object   reflect.Type // nil: the type of the source
	place    string
	opts     options
	call     func(context.Context, *store.Event) error
	registry *Registry
	derived  *Origin // the derived source that this observer feeds; nil: none

	synced latch                // Synchronized has been handled
	gone   latch                // removed or stopped
	feed   atomic.Pointer[feed] // set while attached
	stats  stats
	demand demand

	// The following fields are guarded by Registry.mu. root and filter are constant once the delivery exists.
	root     *Origin // the source after resolving filters
	filter   func(*cache.Record) bool
	delivery *delivery
	removed  bool
	late     bool  // declared during the run
	failure  error // why the policy stopped it
}

// Name returns the name given by its options, or the place of its declaration.
func (o *Observer) Name() string {
	if o.opts.name != "" {
		return o.opts.name
	}
	return o.place
}

// Synced returns a channel that is closed when the observer has handled its own initial objects.
func (o *Observer) Synced() <-chan struct{} { return o.synced.done() }

// Remove ends the observer after its current call. It may be called from within the observer and more than once. When
// its last observer is removed, the source is closed.
func (o *Observer) Remove() {
	r := o.registry
	r.mu.Lock()
	r.observers = slices.DeleteFunc(r.observers, func(other *Observer) bool { return other == o })
	o.failure = nil // a stopped observer reports no failure
	if o.removed {
		r.mu.Unlock()
		return
	}
	o.removed = true
	f := o.detach()
	r.leaving = slices.DeleteFunc(r.leaving, func(other *Observer) bool { return !other.working() })
	if o.working() {
		r.leaving = append(r.leaving, o)
	}
	r.mu.Unlock()
	o.feed.Store(nil)
	if f != nil {
		f.close()
	}
}

// working reports whether a call is in progress. It requires the lock of the registry.
func (o *Observer) working() bool { return o.delivery != nil && o.delivery.working.Load() > 0 }

// stop ends an observer according to its failure policy. The description still contains it.
func (o *Observer) stop(err error) {
	r := o.registry
	r.mu.Lock()
	if o.removed {
		r.mu.Unlock()
		return
	}
	o.removed, o.failure = true, err
	f := o.detach()
	r.mu.Unlock()
	if f != nil {
		f.close()
	}
}

// detach ends the delivery. If the source has no other observer, detach returns its feed, to be closed without the
// lock. The caller holds the lock.
func (o *Observer) detach() *feed {
	o.gone.fire()
	if o.delivery != nil {
		o.delivery.close()
	}
	if o.root == nil || o.root.feed == nil || o.registry.observed(o.root) {
		return nil
	}
	f := o.root.feed
	o.root.feed = nil
	return f
}

// observed reports whether a source has an observer. It requires the lock.
func (r *Registry) observed(root *Origin) bool {
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return o.root == root && !o.removed })
}

// reported records the outcome of an event.
func (o *Observer) reported(ctx context.Context, out outcome) {
	o.stats.count(out)
	if out.event.Type == store.Synced && out.final && !out.stopped {
		o.synced.fire() // also after a failure: an observer that fails on Synchronized must not block others
		if o.opts.passive {
			o.delivery.close()
		}
	}
	if out.err == nil {
		return
	}
	facts := []any{
		"observer", o.Name(), "selector", o.selector.String(), "event", typeOf(out.event.Type).String(),
		"key", out.event.Key.String(), "attempt", out.attempt, "error", out.err,
	}
	var panicked *panicError
	if errors.As(out.err, &panicked) {
		facts = append(facts, "stack", string(panicked.Stack))
	}
	log := o.registry.log
	switch {
	case out.stopped:
		log.ErrorContext(ctx, "observer stopped", facts...)
		o.stop(out.err)
	case out.final:
		log.ErrorContext(ctx, "event given up", facts...)
	default:
		log.WarnContext(ctx, "observer failed", facts...)
	}
}
