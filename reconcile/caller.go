package reconcile

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// caller performs reconciliations. It loads the object, keeps the finalizer and calls the reconciler. It has no state.
type caller struct {
	client    *client.Client
	object    work
	main      *watch // of the primaries
	bindings  *bindings
	finalizer *finalizer // nil if the reconciler has no Cleanup
	deadline  time.Duration
	stuck     time.Duration // negative: report nothing
	tracer    *tracer
	metrics   *metrics
	log       *slog.Logger
	reads     func(r *reconciliation, seen facts)                // before an object that exists is reconciled
	finish    func(r *reconciliation, end completion) verdict    // after each reconciliation
	report    func(r *reconciliation, end completion, v verdict) // after finish
}

// kind returns the reconciled kind.
func (c *caller) kind() schema.GroupVersionKind { return c.main.kind }

// perform reconciles one object.
func (c *caller) perform(ctx context.Context, r *reconciliation) {
	rec, exists := r.store.Get(r.key)
	exists = exists && c.main.selects(rec)
	if exists {
		c.reads(r, factsOf(rec))
	}
	end := completion{err: errGoexit, existed: exists}
	defer func() { // also runs on runtime.Goexit in a user's function
		r.stop(errReturned)
		c.end(r, end)
	}()
	if !exists {
		end.err = nil
		return
	}
	ctx, done := c.bounded(ctx, r)
	defer done()
	ctx = c.tracer.begin(ctx, r)
	end.res, end.err = c.reconcile(ctx, r, rec)
	if cause := abortCause(ctx); cause != nil && end.err != nil {
		end.err = &abortError{cause: cause, err: end.err}
	}
}

// abortError is the error of a reconciliation that the controller cancelled.
type abortError struct{ cause, err error }

func (e *abortError) Error() string   { return e.err.Error() }
func (e *abortError) Unwrap() []error { return []error{e.err, e.cause} }

func isAbort(err error) bool {
	_, ok := err.(*abortError)
	return ok
}

// end handles the end of a reconciliation.
func (c *caller) end(r *reconciliation, end completion) {
	end.at = time.Now()
	rec, exists := r.store.Get(r.key)
	end.exists = exists
	if (!exists || !c.main.selects(rec)) && !r.store.Lacks(r.key.Namespace, r.facts.uid) {
		c.object.deleted(r.key) // it may have been deleted after it was read, before its work began
	}
	v := c.finish(r, end)
	if end.existed {
		c.metrics.runs.WithLabelValues(v.outcome).Inc()
		c.metrics.seconds.Observe(end.at.Sub(r.begun).Seconds())
	}
	r.endSpan(v.outcome, end.err)
	c.report(r, end, v)
}

// bounded returns the context of a reconciliation with its deadline, and reports it if it does not return. The caller
// must call done after it.
func (c *caller) bounded(ctx context.Context, r *reconciliation) (_ context.Context, done func()) {
	stop := func() {}
	if c.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.deadline, ErrDeadline)
		stop = cancel
	}
	stopReports := c.reportStuck(r)
	return ctx, func() { stopReports(); stop() }
}

// reportStuck reports a reconciliation that does not return. stop ends the reports and waits for a running one.
func (c *caller) reportStuck(r *reconciliation) (stop func()) {
	if c.stuck < 0 {
		return func() {}
	}
	id := goroutine.Current()
	return remind(c.deadline+c.stuck, func(waited time.Duration) {
		c.metrics.stuck.Inc()
		c.log.Error("a reconciliation does not return", "key", r.key.String(), "for", waited, "stack", goroutine.Stacks(id))
	})
}

// reconcile handles one state of an object.
func (c *caller) reconcile(ctx context.Context, r *reconciliation, rec *cache.Record) (Result, error) {
	rights := c.bindings.ofCall(r)
	own := c.client.Bound(rights)
	obj, err := c.load(ctx, own, r.store, rec)
	if err != nil || obj == nil {
		return Done, err
	}
	userCtx := c.bindings.userContext(ctx, r, rights)
	if c.finalizer == nil {
		return protected(func() (Result, error) { return c.object.do(userCtx, obj) })
	}
	has := c.finalizer.on(obj)
	if obj.GetDeletionTimestamp() != nil {
		if !has {
			return Done, nil // already cleaned up, or never started
		}
		res, err := protected(func() (Result, error) { return c.object.clean(userCtx, obj) })
		if err != nil || res != Done {
			return res, err
		}
		return Done, c.finalizer.remove(ctx, own, obj)
	}
	if !has {
		if gone, err := c.finalizer.add(ctx, own, obj); gone || err != nil {
			return Done, err
		}
	}
	return protected(func() (Result, error) { return c.object.do(userCtx, obj) })
}

// load returns a copy of the freshest state for the reconciler; nil if the object does not exist.
func (c *caller) load(ctx context.Context, own *client.Client, st *cache.Store, rec *cache.Record) (client.Object,
	error,
) {
	if st.Overdue(rec.Key()) { // the watch has not delivered our last write in time
		obj, err := c.read(ctx, own, rec.Key())
		if isGone(err) {
			return nil, nil
		}
		return obj, err
	}
	obj, err := c.object.decode(rec)
	if err != nil {
		return nil, &terminalError{err}
	}
	obj.GetObjectKind().SetGroupVersionKind(c.kind())
	return obj, nil
}

// read reads an object from the server.
func (c *caller) read(ctx context.Context, own *client.Client, k Key) (client.Object, error) {
	obj := c.object.fresh()
	obj.GetObjectKind().SetGroupVersionKind(c.kind())
	return obj, own.Live().Get(ctx, k, obj)
}

// protected calls the user's code. It turns a panic into an error, also a panic in a method of the returned error.
func protected(fn func() (Result, error)) (res Result, err error) {
	return guard(func() (Result, error) {
		res, err := fn()
		if err != nil {
			_, _, _ = err.Error(), classify(err), retryAfter(err)
		}
		return res, err
	})
}
