package observe

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/store"
)

// batch is how many events a delivery takes at once; taking the next batch acknowledges the one before.
const batch = 64

// stream is what a delivery takes events from: a cursor of a store, or of a derived source.
type stream interface {
	// Take returns up to limit events that are due and acknowledges all that were taken before.
	Take(limit int) []store.Event
	// Lag returns how much is due.
	Lag() int
	// Close ends the stream; its memory is given back.
	Close()
}

// delivery brings the events of one stream to one observer. It has a goroutine only while there is something to
// deliver: wake starts it, and it ends when the stream is drained.
type delivery struct {
	opts   options
	call   func(ctx context.Context, e store.Event) error
	report func(outcome)
	stream stream
	state  atomic.Int32
	// active counts the goroutines of this delivery. Its owner waits for it after cancelling the context.
	active sync.WaitGroup
}

// outcome is what became of one event.
type outcome struct {
	event   store.Event
	err     error // nil: handled
	attempt int   // 1 for the first call
	final   bool  // no further call for this event
	stopped bool  // the observer ends
	took    time.Duration
}

// The states of a delivery: idle has no goroutine, busy has one, again has one that must look once more.
const (
	idle int32 = iota
	busy
	again
	closed
)

// wake makes sure that what is due will be delivered. It never blocks and may be called from anywhere.
func (d *delivery) wake(ctx context.Context) {
	for {
		switch s := d.state.Load(); s {
		case idle:
			if d.state.CompareAndSwap(idle, busy) {
				d.active.Go(func() { d.run(ctx) })
				return
			}
		case busy:
			if d.state.CompareAndSwap(busy, again) {
				return
			}
		default:
			return
		}
	}
}

// close ends the delivery: what is being handled is finished, nothing more is taken.
func (d *delivery) close() {
	if d.state.Swap(closed) != closed {
		d.stream.Close()
	}
}

func (d *delivery) run(ctx context.Context) {
	var a *async
	if d.opts.limit > 0 {
		a = newAsync(d.opts.limit, func(e store.Event) { d.handle(ctx, e) })
		defer a.wait()
	}
	for ctx.Err() == nil && d.state.Load() != closed {
		room := batch
		if a != nil {
			room = a.room()
		}
		events := d.stream.Take(room)
		if len(events) == 0 {
			if a != nil {
				a.wait() // the goroutine owns its workers, so it stays until they are done
			}
			if d.state.CompareAndSwap(busy, idle) {
				return
			}
			d.state.CompareAndSwap(again, busy)
			continue
		}
		for _, e := range events {
			if ctx.Err() != nil || d.state.Load() == closed {
				return
			}
			switch {
			case a == nil:
				d.handle(ctx, e)
			case e.Type == store.Synced || e.Type == store.Epoch:
				a.wait() // they come after everything before them
				d.handle(ctx, e)
			default:
				a.add(e)
			}
		}
	}
}

// handle calls the observer for one event until it is handled or given up.
func (d *delivery) handle(ctx context.Context, e store.Event) {
	for attempt := 1; ; attempt++ {
		if d.state.Load() == closed {
			return
		}
		begin := time.Now()
		err := d.protect(ctx, e)
		o := outcome{event: e, err: err, attempt: attempt, final: true, took: time.Since(begin)}
		var undecodable *DecodeError
		switch {
		case err == nil, ctx.Err() != nil, d.opts.failure == Skip, errors.As(err, &undecodable):
		case d.opts.failure == Stop:
			o.stopped = true
		default:
			o.final = attempt >= d.opts.attempts
		}
		d.report(o)
		if o.stopped {
			d.close()
		}
		if o.final {
			return
		}
		if !pause(ctx, backoff.Policy{Base: retryBase, Cap: retryCap, Factor: 2}.Delay(attempt, nil)) {
			return
		}
	}
}

func (d *delivery) protect(ctx context.Context, e store.Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return d.call(ctx, e)
}

// pause waits and tells whether the context is still alive.
func pause(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
