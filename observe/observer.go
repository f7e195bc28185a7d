package observe

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
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
	log      *slog.Logger
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

// newObserver returns an observer without a function, which is not declared yet.
func newObserver(h Host, s Selector, object reflect.Type, opts []Option) *Observer {
	r := h.Observers()
	return &Observer{selector: s, object: object, place: declared(), registry: r, log: r.log, opts: newOptions(opts)}
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
func (o *Observer) Remove() { o.registry.remove(o) }

// working reports whether a call is in progress. It requires the lock of the registry.
func (o *Observer) working() bool { return o.delivery != nil && o.delivery.working.Load() > 0 }

// end ends the delivery. It requires the lock of the registry.
func (o *Observer) end() {
	o.gone.fire()
	if o.delivery != nil {
		o.delivery.close()
	}
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
	switch {
	case out.stopped:
		o.log.ErrorContext(ctx, "observer stopped", facts...)
		o.registry.stop(o, out.err)
	case out.final:
		o.log.ErrorContext(ctx, "event given up", facts...)
	default:
		o.log.WarnContext(ctx, "observer failed", facts...)
	}
}
