package outbox

import (
	"cmp"
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

// LeaseMargin is the time for which an entry stays leased beyond Relay.Timeout, to store the outcome.
const LeaseMargin = 30 * time.Second

// storeTimeout bounds a statement of the relay. Statements complete even when Run is stopped, so that no row stays
// leased without a relay.
const storeTimeout = 10 * time.Second

// Deliver delivers an entry and returns nil after that. The error of [Reject] means that delivery is impossible. The
// error of [RetryAfter] sets the delay of the next attempt. After any other error the entry is retried with the usual
// backoff. Deliver is called concurrently for entries of different keys. It may be called again, with the same ID, for
// an entry that it has delivered. It should return soon after ctx is done. A panic counts as an error with a retry.
type Deliver func(ctx context.Context, e Entry) error

// Relay delivers the entries of an Outbox. Only Outbox and Deliver are required. Several relays may work on one Outbox,
// in one process or in many. The fields must not change during Run.
type Relay struct {
	Outbox  *Outbox
	Deliver Deliver

	// Concurrency bounds the entries that are leased and in delivery. Default: 16.
	Concurrency int

	// Timeout bounds one delivery. Default: 30s. If a relay dies, another one delivers its entries after Timeout and
	// [LeaseMargin].
	Timeout time.Duration

	// Poll is the interval between reads of the table without Notify. Default: 1s.
	Poll time.Duration

	// InitialBackoff and MaxBackoff bound the delay before a retry. The delay doubles with each attempt and is drawn
	// randomly from its upper half. Default: 1s and 5m.
	InitialBackoff, MaxBackoff time.Duration

	// Keep is how long delivered entries stay in the table, which is how long a repeated Enqueue is recognized.
	// Default: 24h. Rejected entries stay until they are deleted manually.
	Keep time.Duration

	// TracerProvider creates a span for each delivery, as the root of a trace. Deliver is called in its context.
	// Default: none.
	TracerProvider trace.TracerProvider

	// Log receives a line for each failure. Default: the logger of the fairlead runtime that runs Run, else none.
	Log *slog.Logger
}

// Run delivers entries until ctx is done. It then waits for the deliveries in progress, whose contexts end too, and
// returns nil. Interrupted entries become available to other relays at once. Run returns [ErrInvalid] immediately if
// Outbox or Deliver is missing. Database errors are logged and retried.
func (r *Relay) Run(ctx context.Context) error {
	if r.Outbox == nil || r.Deliver == nil {
		return fmt.Errorf("cannot run relay: %w: Outbox and Deliver are required", ErrInvalid)
	}
	run := newRun(r)
	run.Log = cmp.Or(run.Log, inherit.From(ctx), slog.New(slog.DiscardHandler))
	for ctx.Err() == nil {
		run.step(ctx)
	}
	run.finish(ctx)
	return nil
}

// run is one call of Relay.Run: the settings with defaults, and the state. Only the loop accesses the database, so that
// one transaction stores the outcomes of many deliveries. Only the delivery goroutines run user code.
type run struct {
	Relay
	table      *table
	commit     *signal
	tracer     trace.Tracer // nil: none
	deliveries sync.WaitGroup
	ended      chan outcome // has room for all deliveries
	unstored   []outcome
	busy       int // leased entries whose outcome is not stored yet
	failures   int // consecutive database errors
	nextClean  time.Time
}

func newRun(r *Relay) *run {
	run := &run{
		Relay: *r, table: &r.Outbox.table, commit: &r.Outbox.commit,
		tracer: tracing.Tracer(r.TracerProvider, "operation/outbox"),
	}
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

// step stores outcomes, starts deliveries, and waits until more may be due.
func (r *run) step(ctx context.Context) {
	changed := r.commit.changed() // before the read, so that no commit is missed
	wait := r.Poll
	if err := r.exchange(ctx); err != nil {
		if r.failures++; r.failures == 1 {
			r.Log.WarnContext(ctx, "cannot use outbox, trying again", "error", err)
		}
		wait = retryDelay(r.InitialBackoff, min(r.MaxBackoff, 30*time.Second), r.failures)
		changed = nil // do not query a failing database earlier because of a Notify
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

// exchange stores outcomes and leases entries up to Concurrency.
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
	leases, err := r.table.claim(statement, free, r.Timeout+LeaseMargin)
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

// collect takes further outcomes without waiting.
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

// store writes the outcomes. If it fails, they remain for the next time.
func (r *run) store(ctx context.Context) error {
	if len(r.unstored) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	lost, err := r.table.store(ctx, r.unstored)
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

// finish waits for the deliveries and stores their outcomes.
func (r *run) finish(ctx context.Context) {
	r.deliveries.Wait()
	r.collect()
	if err := r.store(ctx); err != nil {
		// Their leases expire, and they are delivered again.
		r.Log.WarnContext(ctx, "cannot store the outcomes of the last outbox entries", "entries", len(r.unstored),
			"error", err)
	}
}

// deliver delivers one entry and returns the outcome.
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
	err := ctx.Err() // skip the call if Run was stopped during the claim
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
		return outcome{lease: l, state: stateReleased} // stopped; the attempt does not count
	case errors.As(err, &postponed):
		log.InfoContext(ctx, "outbox entry postponed", "after", postponed.after, "error", postponed.cause)
		return outcome{lease: l, state: statePending, after: postponed.after, reason: postponed.cause.Error()}
	default:
		after := retryDelay(r.InitialBackoff, r.MaxBackoff, l.Attempt)
		log.WarnContext(ctx, "outbox entry not delivered", "after", after, "error", err)
		return outcome{lease: l, state: statePending, after: after, reason: err.Error()}
	}
}

// call calls Deliver with the timeout and recovers panics.
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
	now := r.table.time()
	if now.Before(r.nextClean) {
		return
	}
	full, err := r.table.clean(ctx, r.Keep)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot delete delivered outbox entries", "error", err)
	}
	if !full { // otherwise more remain for the next step
		r.nextClean = now.Add(min(time.Minute, r.Keep))
	}
}
