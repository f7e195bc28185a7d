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
	object   reflect.Type // nil: whatever the source delivers
	place    string
	opts     options
	call     func(context.Context, *store.Event) error
	registry *Registry
	derived  *Origin // that this observer feeds, if it is one of ours

	synced latch                // it has handled Synchronized
	gone   latch                // it was removed or stopped
	feed   atomic.Pointer[feed] // while it is attached
	stats  stats
	demand demand

	// What follows is guarded by Registry.mu; root and filter do not change after the delivery was made.
	root     *Origin // the source that it is attached to, filters resolved
	filter   func(*cache.Record) bool
	delivery *delivery
	removed  bool
	late     bool  // declared while it ran
	failure  error // why it was stopped
}

// Name returns the name of the observer: that of its options, or the place of its declaration.
func (o *Observer) Name() string {
	if o.opts.name != "" {
		return o.opts.name
	}
	return o.place
}

// Synced returns a channel that is closed when the observer has handled its own initial objects.
func (o *Observer) Synced() <-chan struct{} { return o.synced.done() }

// Remove ends the observer. What it is handling is finished; it may be called from within, and again. The source goes
// when its last observer has gone.
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

// working says whether a call has not returned. The lock of the registry is held.
func (o *Observer) working() bool { return o.delivery != nil && o.delivery.working.Load() > 0 }

// stop ends an observer whose policy says so. It stays in the description.
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

// detach ends the delivery and returns the feed of the source if nobody observes it any more, to be closed without the
// lock, which the caller holds.
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

// observed says whether a source has an observer. The lock is held.
func (r *Registry) observed(root *Origin) bool {
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return o.root == root && !o.removed })
}

// reported takes note of what became of an event.
func (o *Observer) reported(ctx context.Context, out outcome) {
	o.stats.count(out)
	if out.event.Type == store.Synced && out.final && !out.stopped {
		o.synced.fire() // it was told; that it could not cope does not make others wait
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
