package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// LeaseMargin is how much longer than Relay.Timeout an entry stays leased: time to store the outcome.
const LeaseMargin = 30 * time.Second

// storeTimeout bounds a statement of the relay. Statements run to their end when Run is told to stop, so that no row
// stays leased to nobody.
const storeTimeout = 10 * time.Second

// Deliver hands an entry on. It returns nil when that is done, the error of [Reject] when it can never be done, the
// error of [RetryAfter] to be called again at a certain time, and any other error to be called again after the usual
// back-off. It is called for several entries at once, of different keys, and may be called again for an entry that it
// has delivered, with the same ID. It should return soon after ctx is done. A panic counts as an error to try again.
type Deliver func(ctx context.Context, e Entry) error

// Relay delivers the entries of an Outbox. Only Outbox and Deliver are required. Several relays may work on one Outbox,
// in one process or many. Its fields must not change while it runs.
type Relay struct {
	Outbox  *Outbox
	Deliver Deliver

	// Concurrency is how many entries are in delivery at once, and leased. Default: 16.
	Concurrency int

	// Timeout of one delivery. Default: 30s. An entry whose relay died is delivered by another one after Timeout and
	// [LeaseMargin].
	Timeout time.Duration

	// Poll is how often the table is looked at when nothing happens. Default: 1s.
	Poll time.Duration

	// InitialBackoff and MaxBackoff bound the wait before an entry is tried again, which doubles with each attempt and is
	// drawn from the upper half of it. Default: 1s and 5m.
	InitialBackoff, MaxBackoff time.Duration

	// Keep is how long delivered entries stay in the table; so long a repeated Enqueue is recognised. Default: 24h.
	// Rejected ones stay until somebody deletes them.
	Keep time.Duration

	// TracerProvider makes a span of each delivery: the root of a trace, in whose context Deliver is called. Default: none
	// are made.
	TracerProvider trace.TracerProvider

	// Log gets a line for what fails. Default: that of the fairlead runtime that runs Run, else none.
	Log *slog.Logger
}

// Run delivers entries until ctx is done, then waits for the deliveries in flight, whose contexts end too, and returns
// nil. An entry whose delivery was interrupted that way is free for the next relay. It returns [ErrInvalid] at once
// when Outbox or Deliver is missing. Errors of the database are logged and tried again.
func (r *Relay) Run(ctx context.Context) error {
	if r.Outbox == nil || r.Deliver == nil {
		return fmt.Errorf("cannot run relay: %w: Outbox and Deliver are required", ErrInvalid)
	}
	run := newRun(r)
	if run.Log == nil {
		run.Log = inherit.From(ctx)
	}
	if run.Log == nil {
		run.Log = slog.New(slog.DiscardHandler)
	}
	for ctx.Err() == nil {
		run.step(ctx)
	}
	run.finish(ctx)
	return nil
}

// run is one call of Relay.Run: the settings with their defaults, and what is going on. The loop alone talks to the
// database, so that the outcomes of many deliveries are stored in one transaction; the deliveries alone run user code.
type run struct {
	Relay
	box        *Outbox
	tracer     trace.Tracer // nil: none
	deliveries sync.WaitGroup
	ended      chan outcome // has room for those of all deliveries
	unstored   []outcome
	busy       int // entries that are leased, up to the storing of their outcome
	failures   int // of the database, in a row
	nextClean  time.Time
}

func newRun(r *Relay) *run {
	run := &run{Relay: *r, box: r.Outbox, tracer: tracing.Tracer(r.TracerProvider, "operation/outbox")}
	setDefault(&run.Concurrency, 16)
	setDefault(&run.Timeout, 30*time.Second)
	setDefault(&run.Poll, time.Second)
	setDefault(&run.InitialBackoff, time.Second)
	setDefault(&run.MaxBackoff, 5*time.Minute)
	setDefault(&run.Keep, 24*time.Hour)
	run.ended = make(chan outcome, run.Concurrency)
	return run
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// step stores what has ended, starts what can start, and waits until there may be more to do.
func (r *run) step(ctx context.Context) {
	changed := r.box.changed() // before looking, so that no commit falls between
	wait := r.Poll
	if err := r.exchange(ctx); err != nil {
		if r.failures++; r.failures == 1 {
			r.Log.WarnContext(ctx, "cannot use outbox, trying again", "error", err)
		}
		wait = retryDelay(r.InitialBackoff, min(r.MaxBackoff, 30*time.Second), r.failures)
		changed = nil // a database that does not answer is not asked more often because there is more to do
	} else if r.failures > 0 {
		r.Log.InfoContext(ctx, "outbox can be used again", "failures", r.failures)
		r.failures = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	case o := <-r.ended:
		r.unstored = append(r.unstored, o)
	}
	r.collect()
}

// exchange stores outcomes and leases as many entries as there is room for.
func (r *run) exchange(ctx context.Context) error {
	if err := r.store(ctx); err != nil {
		return err
	}
	free := r.Concurrency - r.busy
	if free == 0 {
		return nil
	}
	statement, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	leases, err := r.box.claim(statement, free, r.Timeout+LeaseMargin)
	if err != nil {
		return err
	}
	r.busy += len(leases)
	for _, l := range leases {
		r.deliveries.Go(func() { r.ended <- r.deliver(ctx, l) })
	}
	r.clean(statement)
	return nil
}

// collect takes what has ended meanwhile, without waiting.
func (r *run) collect() {
	for {
		select {
		case o := <-r.ended:
			r.unstored = append(r.unstored, o)
		default:
			return
		}
	}
}

// store writes the outcomes. When it fails they stay, for the next time.
func (r *run) store(ctx context.Context) error {
	if len(r.unstored) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	lost, err := r.box.store(ctx, r.unstored)
	if err != nil {
		return err
	}
	for _, l := range lost {
		r.Log.WarnContext(ctx, "outbox entry took longer than its lease, its outcome does not count", "id", l.ID,
			"key", l.Key, "attempt", l.Attempt)
	}
	r.busy -= len(r.unstored)
	r.unstored = nil
	return nil
}

// finish waits for the deliveries and stores what came of them.
func (r *run) finish(ctx context.Context) {
	r.deliveries.Wait()
	r.collect()
	if err := r.store(ctx); err != nil {
		// Their leases run out, and they are delivered again.
		r.Log.WarnContext(ctx, "cannot store the outcomes of the last outbox entries", "entries", len(r.unstored),
			"error", err)
	}
}

// deliver hands one entry on and says what came of it.
func (r *run) deliver(ctx context.Context, l lease) outcome {
	if r.tracer == nil {
		return r.attempt(ctx, l)
	}
	ctx, span := r.trace(ctx, l)
	o := r.attempt(ctx, l)
	endTrace(span, o)
	return o
}

func (r *run) attempt(ctx context.Context, l lease) outcome {
	err := ctx.Err() // not called when Run was told to stop while the entry was being claimed
	if err == nil {
		err = r.call(ctx, l.Entry)
	}
	log := r.Log.With("id", l.ID, "key", l.Key, "attempt", l.Attempt)
	var rejected *rejection
	var postponed *postponement
	switch {
	case err == nil:
		return outcome{lease: l, state: stateDelivered}
	case errors.As(err, &rejected):
		log.WarnContext(ctx, "outbox entry rejected", "error", rejected.cause)
		return outcome{lease: l, state: stateRejected, reason: rejected.cause.Error()}
	case ctx.Err() != nil:
		return outcome{lease: l, state: stateReleased} // told to stop, which is no fault of the entry
	case errors.As(err, &postponed):
		log.InfoContext(ctx, "outbox entry postponed", "after", postponed.after, "error", postponed.cause)
		return outcome{lease: l, state: statePending, after: postponed.after, reason: postponed.cause.Error()}
	default:
		after := retryDelay(r.InitialBackoff, r.MaxBackoff, l.Attempt)
		log.WarnContext(ctx, "outbox entry not delivered", "after", after, "error", err)
		return outcome{lease: l, state: statePending, after: after, reason: err.Error()}
	}
}

// call runs the user's function.
func (r *run) call(ctx context.Context, e Entry) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if p := protect.Call(func() { err = r.Deliver(ctx, e) }); p != nil {
		r.Log.ErrorContext(ctx, "panic in Deliver", "id", e.ID, "panic", p.Value, "stack", string(p.Stack))
		return fmt.Errorf("panic in Deliver: %v", p.Value)
	}
	return err
}

// clean deletes a bounded number of old delivered entries, about once a minute.
func (r *run) clean(ctx context.Context) {
	now := time.Now()
	if r.box.now != nil {
		now = r.box.now()
	}
	if now.Before(r.nextClean) {
		return
	}
	full, err := r.box.clean(ctx, r.Keep)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot delete delivered outbox entries", "error", err)
	}
	if !full { // else there is more, to be deleted in the next step
		r.nextClean = now.Add(min(time.Minute, r.Keep))
	}
}
