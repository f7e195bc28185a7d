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

// batch is how many events a delivery takes at once.
const batch = 64

// delivery brings the events of one subscriber to one observer. Its drainer has a goroutine only while there is
// something to deliver. An async observer has workers besides.
type delivery struct {
	opts    *options
	call    func(context.Context, *store.Event) error
	report  func(outcome)
	drain   *store.Drainer
	ctx     context.Context //nolint:containedctx // it is the lifetime of the run, to which the wakes of the store belong
	owner   *sync.WaitGroup // waits for all goroutines of the delivery
	async   *async          // nil: sync
	gate    *gate           // nil: it passes none
	derived bool            // what it delivers was made here
	skip    skipped
	closed  atomic.Bool
	over    latch // with it: ends the pauses between retries

	behind  behind
	working atomic.Int32 // calls that have not returned
}

// outcome is what became of one call for an event.
type outcome struct {
	event   *store.Event
	err     error // nil: handled
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

// start subscribes to a store and begins to deliver.
func (d *delivery) start(st *cache.Store, sub store.SubscribeOptions) {
	d.drain = st.Drain(store.DrainOptions{
		SubscribeOptions: sub, Batch: batch, Owner: d.owner, Consumer: d,
	})
	d.drain.Start()
}

// close ends the delivery: what is being handled is finished, nothing more is taken, and no goroutine is started any
// more. It may be called from within the observer, and again.
func (d *delivery) close() {
	if !d.closed.Swap(true) {
		d.over.fire()
	}
	d.drain.Close()
}

// lag is how many events, or keys, have not been given to the observer yet.
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

// behindSince is when an event was there that has not been handled; zero if there is none.
func (d *delivery) behindSince() time.Time {
	if d.closed.Load() {
		return time.Time{}
	}
	return d.behind.since()
}

func (d *delivery) ended() bool { return d.closed.Load() || d.ctx.Err() != nil }

// Consume implements store.Consumer: it hands a batch on, and says whether to go on.
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

// Failed implements store.Consumer: it ends a delivery whose goroutine was ended by a filter, which runtime.Goexit does,
// or by a panic of what is not the observer.
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
		d.async.idle() // they come after everything before them, and before everything after them
		d.handle(e)
	case typeOf(e.Type) != 0:
		d.async.add(*e, d.owner)
	}
}

// retries are what OnFailure says of them.
var retries = backoff.Policy{Base: retryBase, Cap: retryCap, Factor: 2, Floor: retryBase}

// handle calls the observer for one event until it is handled or given up.
func (d *delivery) handle(e *store.Event) {
	for attempt := 1; !d.closed.Load(); attempt++ {
		begin := time.Now()
		ctx, in, ok := d.enter(e)
		if !ok && e.Type == store.Deleted { // its slot has left meanwhile, and that is all that is known of it here
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
				return // it was told to stop
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

// enter returns the context of a call for an event; ok is false if it is not to be made.
func (d *delivery) enter(e *store.Event) (ctx context.Context, in entry, ok bool) {
	switch {
	case d.gate == nil || e.Object == nil:
		return d.ctx, entry{}, true
	case e.Type == store.Left:
		return d.ctx, entry{}, !d.skip.take(e.Key)
	}
	if ctx, in, ok = d.gate.enter(e.Object, d.derived); !ok {
		d.skip.add(e)
	}
	return cmp.Or(ctx, d.ctx), in, ok
}

// protect calls the observer. A panic is an error; runtime.Goexit, which cannot be caught, ends the observer.
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

// leave ends the observer, whose goroutine has ended without returning.
func (d *delivery) leave(e *store.Event, err error) {
	d.close()
	d.report(outcome{event: e, err: err, attempt: 1, final: true, stopped: true})
}

// pause waits between two calls and says whether to go on.
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
