package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/store"
)

// work is the loop of a worker. It ends when no item is ready.
func (c *Controller) work() {
	returned := false
	defer func() {
		if !returned { // the user's function called runtime.Goexit; replace this worker
			c.mu.Lock()
			c.workers--
			c.spawn()
			c.mu.Unlock()
		}
	}()
	id := goroutine.Current()
	for c.next(id) {
	}
	returned = true
}

// next reconciles one object in the goroutine id. It returns false if no item is ready, and the worker must end.
func (c *Controller) next(id goroutine.ID) bool {
	c.mu.Lock()
	var it *item
	if c.term != nil && c.term.Err() == nil && !c.held() {
		it = c.q.pick()
	}
	if it == nil {
		c.workers--
		c.mu.Unlock()
		return false
	}
	c.total.take(c.now())
	term := c.term
	ctx, cancel := context.WithCancelCause(term)
	r := &reconciliation{
		key: it.key, slot: it.slot, term: term, why: it.reasons, begun: c.now(), cancel: cancel, attempt: 1,
		goroutine: id,
	}
	it.reasons, it.seen, it.left, it.current = reasons{}, nil, false, r
	c.runs.add(r)
	c.slots.Add(r.slot) // held: else Lose or finish has forgotten the item
	if f := it.fail; f != nil {
		r.attempt, r.last = f.attempts+1, f.err
	}
	st := c.primary.handle
	r.store = st.Store
	c.mu.Unlock()

	rec, exists := st.Get(r.key)
	exists = exists && c.wanted(rec)
	c.mu.Lock()
	if exists {
		r.facts = factsOf(rec)
		it.started(r.begun, c.set.each)
	}
	c.mu.Unlock()

	var res Result
	err := errGoexit
	defer func() { // also runs on runtime.Goexit in a user's function
		r.stop(errReturned)
		c.finish(it, r, res, err, exists)
	}()
	if !exists {
		err = nil
		return true
	}
	ctx, done := c.context(ctx, r)
	defer done()
	ctx = c.trace(ctx, r)
	res, err = c.reconcile(ctx, r, rec)
	if cause := abortCause(ctx); cause != nil && err != nil {
		err = &abortError{cause: cause, err: err}
	}
	return true
}

// wanted reports whether an object passes the filters of the main watch; the store may hold more.
func (c *Controller) wanted(rec *cache.Record) bool {
	ok, err := c.main.matches(rec)
	return ok && err == nil
}

// abortError is the error of a reconciliation that the controller cancelled.
type abortError struct{ cause, err error }

func (e *abortError) Error() string   { return e.err.Error() }
func (e *abortError) Unwrap() []error { return []error{e.err, e.cause} }

// context returns the context of a reconciliation. The caller must call done after it.
func (c *Controller) context(ctx context.Context, r *reconciliation) (_ context.Context, done func()) {
	stop := func() {}
	if c.set.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.set.deadline, ErrDeadline)
		stop = cancel
	}
	stopReports := c.reportStuck(r)
	return ctx, func() { stopReports(); stop() }
}

// rights returns the client binding of a reconciliation: it may write in its term, until it is stopped.
func (c *Controller) rights(r *reconciliation) binding.Binding {
	fence, outer := r.fence, c.fence(r.term, r.slot)
	if outer != nil {
		fence = func() error {
			if err := r.fence(); err != nil {
				return err
			}
			return outer()
		}
	}
	return binding.Binding{
		Fence: fence, RequireVersion: outer != nil || c.set.preempt,
		Waiting: &r.waiting, Reported: true, Write: store.WriteContext{Owner: c.owner, Primary: r.key},
	}
}

// fence returns a function that returns an error if no request may be sent for an object of a slot, in a term. It
// returns nil if there is no leadership and no sharding.
func (c *Controller) fence(term context.Context, slot int) func() error {
	l, shards := c.set.leader, c.from.Shards
	switch {
	case l != nil && term != nil:
		return func() error { return l.Fence(term) }
	case shards != nil:
		return func() error { return shards.Fence(slot) }
	}
	return nil
}

// userContext returns the context for the user's code, with the Info and the client binding.
func (c *Controller) userContext(ctx context.Context, r *reconciliation, rights binding.Binding) context.Context {
	info := Info{
		Controller: c.name, Key: r.key, Reasons: r.why.list, Dropped: r.why.dropped, Attempt: r.attempt,
		LastError: r.last,
	}
	if c.object.cleans {
		info.Finalizer = c.set.finalizer
		ctx = alloc.WithFinalizer(ctx, c.set.finalizer)
	}
	return binding.With(context.WithValue(ctx, infoKey{}, info), rights)
}

// termOf returns the leadership context of the running reconciliation of an object; nil if none runs.
func (c *Controller) termOf(k Key) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.q.items[k]; it != nil && it.current != nil {
		return it.current.term
	}
	return nil
}

// reportStuck reports a reconciliation that does not return. stop ends the reports and waits for a running one.
func (c *Controller) reportStuck(r *reconciliation) (stop func()) {
	if c.set.stuck < 0 {
		return func() {}
	}
	id := goroutine.Current()
	return remind(c.set.deadline+c.set.stuck, func(waited time.Duration) {
		c.metrics.stuck.Inc()
		c.log.Error("a reconciliation does not return", "key", r.key.String(), "for", waited, "stack", goroutine.Stacks(id))
	})
}

// reconcile handles one state of an object.
func (c *Controller) reconcile(ctx context.Context, r *reconciliation, rec *cache.Record) (Result, error) {
	rights := c.rights(r)
	own := c.client.Bound(rights)
	obj, err := c.load(ctx, own, r.store, rec)
	if err != nil || obj == nil {
		return Done, err
	}
	theirs := c.userContext(ctx, r, rights)
	if !c.object.cleans {
		return c.protect(func() (Result, error) { return c.object.do(theirs, obj) })
	}
	has := hasFinalizer(obj, c.set.finalizer)
	if obj.GetDeletionTimestamp() != nil {
		if !has {
			return Done, nil // already cleaned up, or never started
		}
		res, err := c.protect(func() (Result, error) { return c.object.clean(theirs, obj) })
		if err != nil || res != Done {
			return res, err
		}
		return Done, c.removeFinalizer(ctx, own, obj)
	}
	if !has {
		if gone, err := c.addFinalizer(ctx, own, obj); gone || err != nil {
			return Done, err
		}
	}
	return c.protect(func() (Result, error) { return c.object.do(theirs, obj) })
}

// load returns a copy of the freshest state for the reconciler; nil if the object does not exist.
func (c *Controller) load(ctx context.Context, own *client.Client, st *cache.Store, rec *cache.Record) (client.Object,
	error,
) {
	if st.Overdue(rec.Key()) { // the watch has not delivered our last write in time
		obj := c.object.fresh()
		obj.GetObjectKind().SetGroupVersionKind(c.main.kind)
		err := own.Live().Get(ctx, rec.Key(), obj)
		if isGone(err) {
			return nil, nil
		}
		return obj, err
	}
	obj, err := c.object.decode(rec)
	if err != nil {
		return nil, &terminalError{err}
	}
	obj.GetObjectKind().SetGroupVersionKind(c.main.kind)
	return obj, nil
}

// protect calls the user's code. It turns a panic into an error, also a panic in a method of the returned error.
func (c *Controller) protect(fn func() (Result, error)) (res Result, err error) {
	return guard(func() (Result, error) {
		res, err := fn()
		if err != nil {
			_, _, _ = err.Error(), classify(err), retryAfter(err)
		}
		return res, err
	})
}

// finish records the outcome of a reconciliation and schedules the next one.
func (c *Controller) finish(it *item, r *reconciliation, res Result, err error, existed bool) {
	now := c.now()
	rec, exists := r.store.Get(r.key)
	if (!exists || !c.wanted(rec)) && !r.store.Lacks(r.key.Namespace, r.facts.uid) {
		c.vanished(r.key) // it may have been deleted after it was read, before its work began
	}
	c.mu.Lock()
	it.current, it.state = nil, idle
	c.runs.remove(r)
	c.q.running--
	var failed *Failure
	outcome := "success"
	switch {
	case it.left || !c.slots.Holds(it.slot):
		outcome = "left"
		c.q.forget(it)
	case isAbort(err):
		outcome = "aborted"
		it.reasons.before(r.why)
		c.admit(it, high)
	case err == nil && res.pending:
		outcome = "pending"
		c.suspended(it)
	case err == nil:
		it.fail = nil
		if existed {
			c.done.note(r.key, r.facts.uid, now)
		}
		c.succeeded(it, r, res, now, exists)
	default:
		f := c.failed(it, r, res, err, now)
		failed = f.public(c.name, it)
		outcome = string(f.class)
	}
	term := c.term
	c.mu.Unlock()
	c.slots.Leave(r.slot)
	if existed {
		c.metrics.runs.WithLabelValues(outcome).Inc()
		c.metrics.seconds.Observe(now.Sub(r.begun).Seconds())
	}
	r.endTrace(outcome, err)
	c.report(r, res, err, failed)
	if failed != nil && exists {
		c.tell(term, r, failed)
	}
}

func isAbort(err error) bool {
	_, ok := err.(*abortError)
	return ok
}

// suspended leaves an object to its running fiber, which triggers a reconciliation when it ends. An earlier failure
// remains recorded until then, and is not retried. The caller holds c.mu.
func (c *Controller) suspended(it *item) {
	switch {
	case !it.reasons.empty():
		c.admit(it, high)
	case it.fail != nil || it.rate != nil:
		c.q.rest(it)
	default:
		c.q.forget(it)
	}
	if it.fail != nil && it.fail.class == Stopped { // the fiber is the next attempt
		it.fail.class = Retryable
	}
}

// succeeded schedules the next reconciliation after a success. The caller holds c.mu.
func (c *Controller) succeeded(it *item, r *reconciliation, res Result, now time.Time, exists bool) {
	if !res.requeue || it.requeued.differs(r.facts) {
		it.requeues = 0
	}
	delay := res.after
	if res.requeue {
		delay = c.set.retry.delay(it.requeues, c.rand())
		it.requeues++
		it.requeued = r.facts
	}
	switch {
	case !it.reasons.empty():
		c.admit(it, high)
	case delay > 0 && exists:
		c.waitUntil(it, now.Add(delay), Scheduled)
	case exists && it.rate.recent(now):
		c.q.rest(it) // keep the item: its recent starts count against the rate limit
	default:
		c.q.forget(it)
	}
}

// failed schedules the next reconciliation after a failure. The caller holds c.mu.
func (c *Controller) failed(it *item, r *reconciliation, res Result, err error, now time.Time) *failure {
	f := it.fail
	if f == nil || f.facts.differs(r.facts) {
		f = &failure{since: now}
	}
	f.facts, f.err, f.class, f.at = r.facts, err, classify(err), now
	f.attempts++
	pending := it.reasons
	it.reasons = reasons{}
	it.reasons.before(r.why)
	for _, p := range pending.list {
		it.reasons.add(p)
	}
	if it.seen != nil && r.facts.differs(*it.seen) { // the spec has changed: the next reconciliation is not a retry
		it.fail = nil
		c.admit(it, high)
		return f
	}
	it.fail = f
	if f.class != Stopped && c.set.attempts > 0 && f.attempts >= c.set.attempts {
		f.class, f.err = Stopped, fmt.Errorf("%w after %d: %w", ErrExhausted, f.attempts, err)
	}
	switch f.class {
	case Stopped:
		c.q.rest(it)
	case Conflict:
		f.conflicts++
		c.waitUntil(it, now.Add(max(conflictBackoff.delay(f.conflicts-1, c.rand()), res.after)), Retried)
	default:
		delay := max(c.set.retry.delay(f.attempts-f.conflicts-1, c.rand()), retryAfter(err), res.after)
		c.waitUntil(it, now.Add(delay), Retried)
	}
	return f
}
