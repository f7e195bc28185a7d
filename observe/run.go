package observe

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// running opens the sources that have observers and delivers their events, from the start of a registry until its end.
type running struct {
	declared *declarations
	mu       *sync.Mutex // Registry.mu, which guards declared and the fields below that say so
	gate     *gate       // nil: no sharding
	degraded bool        // RegistryOptions.Degraded
	log      *slog.Logger
	open     func(context.Context, *Origin) (*feed, error) // runs user code, so it is called without the lock

	ctx    context.Context //nolint:containedctx // the lifetime of the run and all its goroutines
	cancel context.CancelCauseFunc
	calls  context.Context //nolint:containedctx // ctx for calls of observers without a slot
	work   sync.WaitGroup  // deliveries and openings

	// Guarded by mu: the first attempts to open the sources observed at the start.
	starting bool
	pending  int
	tried    chan struct{} // closed when starting ends

	ended   bool          // guarded by mu
	over    chan struct{} // set by end; closed when work is done
	feeds   []*feed       // set by end
	release sync.Once     // guards the release of feeds
}

// begin attaches all observers, which opens their sources. It requires the lock.
func (run *running) begin(ctx context.Context, expect func(store.Request)) {
	run.starting, run.tried = true, make(chan struct{})
	run.ctx, run.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	run.calls = run.gate.begin(run.ctx)
	if expect != nil {
		run.declared.expect(expect)
	}
	for _, o := range slices.Clone(run.declared.observers) {
		run.attach(o)
	}
	run.attempted()
	for _, o := range run.declared.origins {
		if !run.declared.used(o) {
			run.log.WarnContext(ctx, "source without an observer is not listed", "selector", o.selector.String(), "at", o.place)
		}
	}
}

// attempted ends the start phase after the last first attempt. It requires the lock.
func (run *running) attempted() {
	if run.starting && run.pending == 0 {
		run.starting = false
		close(run.tried)
	}
}

// attach connects a checked observer with its source and opens the source if necessary. It requires the lock.
func (run *running) attach(o *Observer) {
	if o.root, o.filter = run.declared.resolve(run.declared.origin(o.selector)); o.root == nil {
		return
	}
	if run.declared.takesMetadata(o.selector, o.object) && !run.declared.wantsWhole(o.root) {
		o.root = o.root.metadata()
	}
	root := o.root
	if !root.active() {
		root.begin(run.starting)
		if run.starting {
			run.pending++
		}
		run.work.Go(func() { run.tryOpen(root, 1) })
	} else if root.feed != nil {
		run.subscribe(o)
	}
}

// isMistake reports whether another attempt to open a source has the same error.
func isMistake(err error) bool {
	_, ok := errors.AsType[*source.OptionsError](err)
	return ok
}

// reopening is the back-off between attempts to open a source.
var reopening = backoff.Policy{Base: time.Second, Cap: 30 * time.Second, Factor: 2, Floor: time.Second}

// tryOpen opens a source. It starts with the given attempt and retries until opened reports the last one.
func (run *running) tryOpen(root *Origin, attempt int) {
	asking := false
	defer func() {
		if asking && run.opened(root, nil, root.cannotStart(errGoexit)) { // the user's function called runtime.Goexit
			run.work.Go(func() {
				if backoff.Pause(run.ctx, reopening.Delay(attempt, rand.Float64)) == nil {
					run.tryOpen(root, attempt+1)
				}
			})
		}
	}()
	for ; ; attempt++ {
		asking = true
		f, err := run.open(run.ctx, root)
		asking = false
		if !run.opened(root, f, err) || backoff.Pause(run.ctx, reopening.Delay(attempt, rand.Float64)) != nil {
			return
		}
	}
}

// opened records the result of an attempt to open a source and reports whether another attempt is needed.
func (run *running) opened(root *Origin, f *feed, err error) (again bool) {
	run.mu.Lock()
	wanted := !run.ended && run.declared.observed(root)
	again = err != nil && wanted && (run.degraded || !run.starting) && !isMistake(err)
	if root.finish(err, again) {
		run.pending--
		run.attempted()
	}
	if err == nil && wanted {
		root.opened(f)
		for _, o := range run.declared.observers {
			if o.root == root && !o.removed && o.delivery == nil {
				run.subscribe(o)
			}
		}
	}
	run.mu.Unlock()
	switch {
	case err == nil && !wanted:
		f.close()
	case err == nil && f.handle != nil:
		err = root.applyNamespaces(f) // they may have changed during the opening
	}
	if err != nil && run.ctx.Err() == nil {
		run.log.ErrorContext(run.ctx, "cannot start source", "selector", root.selector.String(), "again", again, "error", err)
	}
	return again
}

// subscribe starts the delivery to an observer of an open source. It requires the lock.
func (run *running) subscribe(o *Observer) {
	d := newDelivery(run.calls, &run.work, &o.opts, o.call, func(out outcome) { o.reported(run.ctx, out) })
	if d.async != nil {
		d.async.panicked = func(v any) {
			run.log.ErrorContext(run.ctx, "executor panicked", "observer", o.Name(), "selector", o.selector.String(), "panic", v)
		}
	}
	if d.derived = o.root.derive != nil; d.derived || o.root.feed.store.Options().Shard != "" {
		d.gate = run.gate
	}
	o.delivery = d
	o.feed.Store(o.root.feed)
	d.start(o.root.feed.store, store.SubscribeOptions{Name: o.Name(), Filter: o.filter, Resync: o.opts.resync})
}

// end ends all deliveries and prevents further ones. It requires the lock.
func (run *running) end() {
	run.ended = true
	for _, o := range run.declared.observers {
		if o.delivery != nil {
			o.delivery.close()
		}
	}
	for _, o := range slices.Backward(slices.Collect(run.declared.roots())) {
		if f := o.take(); f != nil {
			run.feeds = append(run.feeds, f)
		}
	}
	run.over = make(chan struct{})
	go func() { // ends with the handlers
		run.work.Wait()
		close(run.over)
	}()
}

// stop waits for the handlers after end, and cancels them when drain ends. It returns false if handlers are still
// running after the grace.
func (run *running) stop(drain context.Context, grace time.Duration) bool {
	select {
	case <-run.over:
	case <-drain.Done():
	case <-run.ctx.Done():
	}
	run.cancel(ErrStopped)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-run.over:
		return true
	case <-timer.C:
		return false
	}
}

// closeFeeds closes the sources once.
func (run *running) closeFeeds() {
	run.release.Do(func() {
		for _, f := range run.feeds {
			f.close()
		}
	})
}
