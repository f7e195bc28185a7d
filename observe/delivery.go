package observe

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/store"
)

// batch is how many events a delivery takes at once.
const batch = 64

// stream is what a delivery takes events from. A *store.Cursor is one.
type stream interface {
	// Take returns up to limit events that are due.
	Take(limit int) []store.Event
	// Lag returns how much is due.
	Lag() int
	// Close ends the stream; it may be called at any time.
	Close()
}

// delivery brings the events of one stream to one observer. It has a goroutine only while there is something to
// deliver: wake starts it, and it ends when the stream is drained. An async observer has workers besides.
type delivery struct {
	opts   *options
	call   func(context.Context, *store.Event) error
	report func(outcome)
	stream stream
	ctx    context.Context //nolint:containedctx // it is the lifetime of the run, to which the wakes of the stream belong
	owner  *sync.WaitGroup // waits for all goroutines of the delivery
	loop   func()          // drain, made once so that a wake allocates nothing
	async  *async          // nil: sync
	closed atomic.Bool
	over   latch // with it: ends the pauses between retries

	working atomic.Int32 // calls that have not returned

	mu    sync.Mutex
	state state
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

// state of a delivery: idle has no draining goroutine, busy has one, again has one that must look once more.
type state uint8

const (
	idle state = iota
	busy
	again
)

func newDelivery(ctx context.Context, owner *sync.WaitGroup, o *options,
	call func(context.Context, *store.Event) error, report func(outcome),
) *delivery {
	d := &delivery{opts: o, call: call, report: report, ctx: ctx, owner: owner}
	d.loop = d.drain
	if o.limit > 0 {
		d.async = newAsync(o.limit, o.execute, d.handle, d.closed.Load)
	}
	return d
}

// wake makes sure that what is due will be delivered. It never blocks and may be called from anywhere.
func (d *delivery) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed.Load():
	case d.state == idle:
		d.state = busy
		d.owner.Add(1) // under the lock: never after close has returned
		go d.loop()
	default:
		d.state = again
	}
}

// rest ends the busy state, unless there was a wake meanwhile.
func (d *delivery) rest() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == again {
		d.state = busy
		return false
	}
	d.state = idle
	return true
}

// close ends the delivery: what is being handled is finished, nothing more is taken, and no goroutine is started any more.
// It may be called from within the observer, and again.
func (d *delivery) close() {
	d.mu.Lock()
	ended := d.closed.Swap(true)
	d.mu.Unlock()
	if !ended {
		d.over.fire()
		d.stream.Close()
	}
}

// lag is how many events, or keys, have not been given to the observer yet.
func (d *delivery) lag() int {
	if d.closed.Load() {
		return 0
	}
	lag := d.stream.Lag()
	if d.async != nil {
		lag += d.async.backlog()
	}
	return lag
}

func (d *delivery) ended() bool { return d.closed.Load() || d.ctx.Err() != nil }

func (d *delivery) drain() {
	defer d.owner.Done()
	taking := false
	defer func() {
		if taking { // a filter has ended this goroutine
			d.leave(&store.Event{})
		}
	}()
	for !d.ended() {
		taking = true
		events := d.stream.Take(batch)
		taking = false
		if len(events) == 0 {
			if d.rest() {
				return
			}
			continue
		}
		for i := range events {
			if d.ended() {
				return
			}
			d.dispatch(&events[i])
		}
	}
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
		err := d.protect(e)
		o := outcome{event: e, err: err, attempt: attempt, final: true, took: time.Since(begin)}
		if err != nil {
			if d.ctx.Err() != nil {
				return // it was told to stop
			}
			var undecodable *store.DecodeError
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

// protect calls the observer. A panic is an error; runtime.Goexit, which cannot be caught, ends the observer.
func (d *delivery) protect(e *store.Event) (err error) {
	d.working.Add(1)
	p := protect.CallOr(func() { err = d.call(d.ctx, e) }, func() {
		d.working.Add(-1)
		d.leave(e)
	})
	d.working.Add(-1)
	if p != nil {
		return (*PanicError)(p)
	}
	return err
}

// leave ends the observer, a function of which has ended its goroutine.
func (d *delivery) leave(e *store.Event) {
	d.close()
	d.report(outcome{event: e, err: errGoexit, attempt: 1, final: true, stopped: true})
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
