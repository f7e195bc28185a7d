package observe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// running is the state between Start and Stop.
type running struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the run and all its goroutines
	cancel context.CancelCauseFunc
	calls  context.Context //nolint:containedctx // ctx for calls of observers without a slot
	work   sync.WaitGroup  // deliveries and openings

	// Guarded by Registry.mu: the first attempts to open the sources observed at the start.
	starting bool
	pending  int
	tried    chan struct{} // closed when starting ends

	// Set by the first Stop.
	over    chan struct{} // closed when work is done
	feeds   []*feed
	release sync.Once // guards the release of feeds
}

// attempted ends the start phase after the last first attempt. It requires the lock of the registry.
func (run *running) attempted() {
	if run.starting && run.pending == 0 {
		run.starting = false
		close(run.tried)
	}
}

// Start checks the declarations, then starts all observed sources concurrently, and their observers. It returns when
// they have started, not when they are synced; see WaitSynced. On an error it stops all of them. The error joins the
// errors of the sources in the order of declaration, or is the cause of ctx if there are none. ctx bounds only the
// start; Stop ends the run.
func (r *Registry) Start(ctx context.Context) error {
	run, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("cannot start observers: %w", err)
	}
	release := context.AfterFunc(ctx, func() { run.cancel(context.Cause(ctx)) })
	<-run.tried
	release()

	var errs []error
	r.mu.Lock()
	if r.run != run {
		errs = append(errs, ErrStopped)
	}
	var ended error
	if ctx.Err() != nil {
		ended = context.Cause(ctx)
	}
	wrong := false
	for o := range r.roots() {
		if o.err != nil && !r.opts.Degraded && (ended == nil || !errors.Is(o.err, ended)) {
			errs, wrong = append(errs, o.err), true
		}
	}
	if !wrong { // otherwise the end of ctx was not the only reason
		errs = append(errs, ended)
	}
	r.mu.Unlock()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	return fmt.Errorf("cannot start observers: %w", errors.Join(append(errs, r.Stop(now))...))
}

// begin attaches all observers, which opens their sources.
func (r *Registry) begin(ctx context.Context) (*running, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return nil, ErrStopped
	case r.run != nil:
		return nil, errStarted
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	run := &running{starting: true, tried: make(chan struct{})}
	run.ctx, run.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	run.calls = r.gate.begin(run.ctx)
	r.run = run
	r.expect()
	for _, o := range slices.Clone(r.observers) {
		r.attach(o)
	}
	run.attempted()
	for _, o := range r.origins {
		if !r.used(o) {
			r.log.WarnContext(ctx, "source without an observer is not listed", "selector", o.selector.String(), "at", o.place)
		}
	}
	return run, nil
}

// used reports whether a source has an observer, directly or through derived sources. It requires the lock.
func (r *Registry) used(o *Origin) bool {
	return slices.ContainsFunc(r.observers, func(by *Observer) bool {
		of := r.origin(by.selector)
		return of != nil && (of == o || r.reaches(of, o, nil))
	})
}

// attach connects a checked observer with its source and opens the source if necessary. It requires the lock.
func (r *Registry) attach(o *Observer) {
	if o.root, o.filter = r.resolve(r.origin(o.selector)); o.root == nil {
		return
	}
	if r.takesMetadata(o.selector, o.object) && !r.wantsWhole(o.root) {
		o.root = o.root.metadata()
	}
	if o.root.opening {
		return
	}
	if o.root.feed != nil {
		r.subscribe(o)
		return
	}
	run, root := r.run, o.root
	root.opening = true
	if run.starting {
		run.pending++
		root.first = true
	}
	run.work.Go(func() { r.open(run, root, 1) })
}

// reopening is the back-off between attempts to open a source.
var reopening = backoff.Policy{Base: time.Second, Cap: 30 * time.Second, Factor: 2, Floor: time.Second}

// open opens a source. It starts with the given attempt and retries until opened reports the last one.
func (r *Registry) open(run *running, root *Origin, attempt int) {
	asking := false
	defer func() {
		if asking && r.opened(run, root, nil, root.cannotStart(errGoexit)) { // the user's function called runtime.Goexit
			run.work.Go(func() {
				if backoff.Pause(run.ctx, reopening.Delay(attempt, rand.Float64)) == nil {
					r.open(run, root, attempt+1)
				}
			})
		}
	}()
	for ; ; attempt++ {
		asking = true
		f, err := root.openFeed(run.ctx)
		asking = false
		if !r.opened(run, root, f, err) || backoff.Pause(run.ctx, reopening.Delay(attempt, rand.Float64)) != nil {
			return
		}
	}
}

// opened records the result of an attempt to open a source and reports whether another attempt is needed.
func (r *Registry) opened(run *running, root *Origin, f *feed, err error) (again bool) {
	r.mu.Lock()
	root.err = err
	wanted := r.run == run && r.observed(root)
	again = err != nil && wanted && (r.opts.Degraded || !run.starting)
	root.opening = again
	if root.first {
		root.first = false
		run.pending--
		run.attempted()
	}
	if err == nil && wanted {
		root.feed, root.since = f, time.Now()
		for _, o := range r.observers {
			if o.root == root && !o.removed && o.delivery == nil {
				r.subscribe(o)
			}
		}
	}
	r.mu.Unlock()
	switch {
	case err == nil && !wanted:
		f.close()
	case err == nil && f.handle != nil:
		err = root.applyNamespaces(f) // they may have changed during the opening
	}
	if err != nil && run.ctx.Err() == nil {
		r.log.ErrorContext(run.ctx, "cannot start source", "selector", root.selector.String(), "again", again, "error", err)
	}
	return again
}

// subscribe starts the delivery to an observer of an open source. It requires the lock.
func (r *Registry) subscribe(o *Observer) {
	run := r.run
	d := newDelivery(run.calls, &run.work, &o.opts, o.call, func(out outcome) { o.reported(run.ctx, out) })
	if d.async != nil {
		d.async.panicked = func(v any) {
			r.log.ErrorContext(run.ctx, "executor panicked", "observer", o.Name(), "selector", o.selector.String(), "panic", v)
		}
	}
	if d.derived = o.root.derive != nil; d.derived || o.root.feed.store.Options().Shard != "" {
		d.gate = r.gate
	}
	o.delivery = d
	o.feed.Store(o.root.feed)
	d.start(o.root.feed.store, store.SubscribeOptions{Name: o.Name(), Filter: o.filter, Resync: o.opts.resync})
}

// Stop ends all observers and sources and waits until they have stopped. Running handlers continue until they return or
// drain ends. Then Stop cancels their context with the cause ErrStopped, and they have the grace of the options to
// return. The error names handlers that do not return. With several calls, the shortest drain applies.
func (r *Registry) Stop(drain context.Context) error {
	r.mu.Lock()
	r.end()
	run := r.stopping
	r.mu.Unlock()
	if run == nil {
		return nil
	}
	select {
	case <-run.over:
	case <-drain.Done():
	case <-run.ctx.Done():
	}
	run.cancel(ErrStopped)
	timer := time.NewTimer(r.opts.Grace)
	defer timer.Stop()
	var err error
	select {
	case <-run.over:
	case <-timer.C:
		err = fmt.Errorf("cannot stop observers: still running after %v: %s", r.opts.Grace, r.working())
	}
	run.release.Do(func() {
		for _, f := range run.feeds {
			f.close()
		}
	})
	return err
}

// end prevents further starts of observers and sources. It requires the lock.
func (r *Registry) end() {
	if !r.ended {
		r.ended = true
		close(r.stopped)
	}
	run := r.run
	if run == nil {
		return
	}
	r.run, r.stopping = nil, run
	for _, o := range r.observers {
		if o.delivery != nil {
			o.delivery.close()
		}
	}
	for _, o := range slices.Backward(slices.Collect(r.roots())) {
		if o.feed != nil {
			run.feeds = append(run.feeds, o.feed)
			o.feed = nil
		}
	}
	run.over = make(chan struct{})
	go func() { // ends with the handlers
		run.work.Wait()
		close(run.over)
	}()
}

// working names the observers, including removed ones, and the functions of sources that have not returned.
func (r *Registry) working() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, o := range slices.Concat(r.observers, r.leaving) {
		if o.working() {
			names = append(names, o.describe())
		}
	}
	for o := range r.roots() {
		if o.opening {
			names = append(names, fmt.Sprintf("source %q (%s)", o.selector, o.place))
		}
	}
	return strings.Join(names, ", ")
}

// WaitSynced waits until every observer has handled its initial objects. The error names those that have not, with the
// reasons. WaitSynced does not wait for removed observers. An observer that its failure policy stopped before is an
// error.
func (r *Registry) WaitSynced(ctx context.Context) error {
	r.mu.Lock()
	observers := slices.Clone(r.observers)
	r.mu.Unlock()
	for i, o := range observers {
		if o.synced.happened() {
			continue
		}
		select {
		case <-o.synced.done():
		case <-o.gone.done():
			if cause := r.failureOf(o); cause != nil {
				return fmt.Errorf("observer stopped before it was synced: %s: %w", o.describe(), cause)
			}
		case <-r.stopped:
			return fmt.Errorf("%w: not synced: %s", ErrStopped, r.missing(observers[i:]))
		case <-ctx.Done():
			return fmt.Errorf("%w: not synced: %s", context.Cause(ctx), r.missing(observers[i:]))
		}
	}
	return nil
}

func (r *Registry) failureOf(o *Observer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return o.failure
}

func (r *Registry) missing(observers []*Observer) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(unsynced(observers), "; ")
}

// Unsynced names the observers that have not handled their initial objects, with the reasons.
func (r *Registry) Unsynced() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return unsynced(r.observers)
}

// unsynced requires the lock of the registry.
func unsynced(observers []*Observer) []string {
	var names []string
	for _, o := range observers {
		if o.synced.happened() || o.gone.happened() && o.failure == nil {
			continue
		}
		name := o.describe()
		if why := o.obstacle(); why != "" {
			name += ": " + why
		}
		names = append(names, name)
	}
	return names
}

// describe names an observer in messages.
func (o *Observer) describe() string {
	if o.opts.name != "" {
		return fmt.Sprintf("%s (%s, %s)", o.selector, o.opts.name, o.place)
	}
	return fmt.Sprintf("%s (%s)", o.selector, o.place)
}

// obstacle returns the reason why an observer is not synced. It requires the lock.
func (o *Observer) obstacle() string {
	switch {
	case o.failure != nil:
		return "it was stopped: " + o.failure.Error()
	case o.root == nil:
		if err := o.registry.checkObserver(o); err != nil {
			return err.Error()
		}
		return "it has not been started"
	case o.root.err != nil:
		return o.root.err.Error()
	case o.root.feed == nil:
		return "its source is being started"
	}
	for _, st := range o.root.feed.store.Statuses() {
		if st.Phase == source.Degraded || !st.Synced {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", st.Namespace, st.Phase, st.Reason, st.Message))
		}
	}
	return "its initial objects are being handled"
}
