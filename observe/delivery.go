package observe

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/store"
)

// batch bounds the events that a delivery takes at once.
const batch = 64

// delivery passes the events of one subscriber to one observer. Its drainer has a goroutine only while events are
// waiting. An async observer additionally has workers.
type delivery struct {
	opts    *options
	call    func(context.Context, *store.Event) error
	report  func(outcome)
	drain   *store.Drainer
	ctx     context.Context //nolint:containedctx // the lifetime of the run, which bounds wakes by the store
	owner   *sync.WaitGroup // waits for all goroutines of the delivery
	async   *async          // nil: sync
	gate    *gate           // nil: no sharding
	derived bool            // the objects come from a derived source
	skip    skipped
	closed  atomic.Bool
	over    latch // fires with closed: ends the pauses between retries

	behind  behind
	working atomic.Int32 // calls in progress
}

// outcome is the result of one call for an event.
type outcome struct {
	event   *store.Event
	err     error // nil: success
	attempt int   // 1 for the first call
	final   bool  // no further call for this event
	stopped bool  // the observer ends
	took    time.Duration
}

func newDelivery(ctx context.Context, owner *sync.WaitGroup, o *options,
	call func(context.Context, *store.Event) error, report func(outcome),
) *delivery {
	d := &delivery{opts: o, call: call, report: report, ctx: ctx, owner: owner}
	if o.limit > 0 {
		d.async = newAsync(o.limit, o.execute, d.handle, d.closed.Load)
	}
	return d
}

// start subscribes to a store and starts delivery.
func (d *delivery) start(st *cache.Store, sub store.SubscribeOptions) {
	d.drain = st.Drain(store.DrainOptions{
		SubscribeOptions: sub, Batch: batch, Owner: d.owner, Consumer: d,
	})
	d.drain.Start()
}

// close ends the delivery. The current event is finished, no more events are taken, and no goroutine is started. It may
// be called from within the observer and more than once.
func (d *delivery) close() {
	if !d.closed.Swap(true) {
		d.over.fire()
	}
	d.drain.Close()
}

// lag returns the number of events, or keys, not yet passed to the observer.
func (d *delivery) lag() int {
	if d.closed.Load() {
		return 0
	}
	lag := d.drain.Lag()
	if d.async != nil {
		lag += d.async.backlog()
	}
	return lag
}

// behindSince returns a time at which an event was unhandled, or zero if there is none.
func (d *delivery) behindSince() time.Time {
	if d.closed.Load() {
		return time.Time{}
	}
	return d.behind.since()
}

func (d *delivery) ended() bool { return d.closed.Load() || d.ctx.Err() != nil }

// Consume implements store.Consumer. It delivers a batch and reports whether to continue.
func (d *delivery) Consume(events []store.Event) (more bool) {
	d.behind.mark(len(events) + d.drain.Lag())
	for i := range events {
		if d.ended() {
			return false
		}
		d.dispatch(&events[i])
		d.behind.handled()
	}
	if d.drain.Lag() == 0 {
		d.behind.clear()
	}
	return !d.ended()
}

// Failed implements store.Consumer. It ends a delivery whose goroutine was ended by a panic outside the observer, or by
// runtime.Goexit in a filter.
func (d *delivery) Failed(panicked error) {
	err := errGoexit
	var p *protect.Panic
	if errors.As(panicked, &p) {
		err = (*panicError)(p)
	}
	d.leave(&store.Event{}, err)
}

func (d *delivery) dispatch(e *store.Event) {
	switch {
	case d.async == nil:
		d.handle(e)
	case e.Type == store.Synced || e.Type == store.Epoch:
		d.async.idle() // Synchronized and Epoch stay in order with all other events
		d.handle(e)
	case typeOf(e.Type) != 0:
		d.async.add(*e, d.owner)
	}
}

// retries is the back-off documented at OnFailure.
var retries = backoff.Policy{Base: retryBase, Cap: retryCap, Factor: 2, Floor: retryBase}

// handle calls the observer for one event until a call succeeds or the event is given up.
func (d *delivery) handle(e *store.Event) {
	for attempt := 1; !d.closed.Load(); attempt++ {
		begin := time.Now()
		ctx, in, ok := d.enter(e)
		if !ok && e.Type == store.Deleted { // its slot was lost: deliver Left instead
			left := *e
			left.Type = store.Left
			e = &left
			ctx, in, ok = d.enter(e)
		}
		if !ok {
			return
		}
		err := d.protect(ctx, in, e)
		o := outcome{event: e, err: err, attempt: attempt, final: true, took: time.Since(begin)}
		if err != nil {
			if ctx.Err() != nil {
				return // the call was cancelled
			}
			var undecodable *cache.DecodeError
			switch {
			case d.opts.failure == Skip, errors.As(err, &undecodable):
			case d.opts.failure == Stop:
				o.stopped = true
				d.close()
			default:
				o.final = attempt >= d.opts.attempts
			}
		}
		d.report(o)
		if o.final || !d.pause(retries.Delay(attempt, rand.Float64)) {
			return
		}
	}
}

// enter returns the context of a call for an event. If ok is false, the call must not be made.
func (d *delivery) enter(e *store.Event) (ctx context.Context, in entry, ok bool) {
	switch {
	case d.gate == nil || e.Object == nil:
		return d.ctx, entry{}, true
	case e.Type == store.Left:
		return d.ctx, entry{}, !d.skip.take(e.Key)
	case e.Type != store.Added && d.skip.has(e.Key): // handle turns Deleted into Left
		return d.ctx, entry{}, false
	}
	if ctx, in, ok = d.gate.enter(e.Object, d.derived); !ok {
		d.skip.add(e)
	}
	return cmp.Or(ctx, d.ctx), in, ok
}

// protect calls the observer. A panic becomes an error. runtime.Goexit cannot be caught and ends the observer.
func (d *delivery) protect(ctx context.Context, in entry, e *store.Event) (err error) {
	d.working.Add(1)
	defer in.leave()
	p := protect.CallOr(func() { err = d.call(ctx, e) }, func() {
		d.working.Add(-1)
		d.leave(e, errGoexit)
	})
	d.working.Add(-1)
	if p != nil {
		return (*panicError)(p)
	}
	return err
}

// leave ends an observer whose goroutine has ended without returning.
func (d *delivery) leave(e *store.Event, err error) {
	d.close()
	d.report(outcome{event: e, err: err, attempt: 1, final: true, stopped: true})
}

// pause waits between two calls and reports whether to continue.
func (d *delivery) pause(duration time.Duration) bool {
	t := time.NewTimer(duration)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.over.done():
	case <-d.ctx.Done():
	}
	return false
}
