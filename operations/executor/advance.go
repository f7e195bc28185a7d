package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// stepAdvance is the only step of the flow of an operation. It reads the state, decides, records, and starts the
// calls that are due. Then it parks until an event arrives or the next action is due.
const stepAdvance = "advance"

func (e *Executor) newFlow() *flow.Flow[run] {
	return flow.New("operation", flow.Step(stepAdvance, e.advance))
}

// repeated is the back-off while requests to the API server fail.
var repeated = backoff.Policy{Base: 500 * time.Millisecond, Cap: 30 * time.Second}

func (e *Executor) advance(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	r := f.Packet
	if e.moves(r) {
		return e.move(ctx, f)
	}
	until, err := e.step(ctx, r)
	if errors.Is(err, errShort) {
		e.standsInTrouble(r, true)
		err = nil
	} else if r.short || r.paid.Count > 0 { // a run that writes nothing now must not keep others from writing
		e.unpay(r)
	}
	if err == nil {
		e.recovered(r)
	}
	e.settle(r)
	switch {
	case errors.Is(err, errGone):
		return f.End()
	case err == nil && until.IsZero():
		return f.End()
	case e.moves(r):
		return e.move(ctx, f)
	case err == nil:
		r.tries = 0
	case ctx.Err() != nil:
		return f.Fail(context.Cause(ctx))
	default:
		r.tries++
		wait := repeated.Delay(int(r.tries)-1, rand.Float64)
		until = e.now().Add(wait)
		e.suffers(r, err, until)
		e.standsInTrouble(r, false)
		e.log.WarnContext(ctx, "operation has to wait", "key", r.key, "error", err, "wait", wait)
	}
	if !until.Before(course.FarFuture) {
		return f.Await(&r.news).Then(stepAdvance)
	}
	return f.Await(&r.news, flow.Until(time.Now().Add(until.Sub(e.now())))).Then(stepAdvance)
}

// step brings the operation to its next wait, or to its end. It returns the time until which the run has nothing to
// do; zero: the run has ended. With errShort, the run waits for the namespace's share of writes meanwhile.
func (e *Executor) step(ctx context.Context, r *run) (until time.Time, err error) {
	for first := true; ; first = false {
		back, news := e.look(r)
		if first || news { // a slot may be kept for a call
			r.askAgain()
		}
		if err := e.refresh(ctx, r); err != nil {
			e.comeBackLater(r, back)
			return until, err
		}
		ctx = e.another(ctx, r)
		now := e.now()
		e.land(ctx, r, back, now)
		e.note(r)
		if r.refusal != nil {
			e.outgrown(r, r.refusal, now)
			r.refusal = nil
		}
		deadline := course.FarFuture
		if end := r.op.Deadline(); now.Before(end) {
			deadline = end
		}
		find := e.find(r.key.Namespace)
		if len(r.refused) > 0 {
			e.withdraw(r, unwanted(r.op, find))
		}
		d := course.Plan(r.op, course.Surroundings{
			Find: find, Flying: r.isFlying, NotBefore: r.notBefore,
			Turn: func(op *v1alpha1.Operation) course.Turn { return e.turn(r, op) },
		}, now)
		switch d.Act {
		case course.ActNothing:
			if len(r.unsaved) > 0 && r.op.Terminal() { // the terminal status is not persisted yet
				end := *r.op // save may adopt the next request into r.op
				if err = e.save(ctx, r); err == nil {
					e.ended(ctx, &end)
					continue
				}
				break
			}
			until, err = e.rest(ctx, r, now)
		case course.ActBegin:
			r.apply(course.Begin(now, e.placeOf))
			r.later = nil
			e.began(ctx, r.op)
			continue
		case course.ActFail:
			r.apply(course.Fail(r.op.EffectiveID(), d.Reason, d.Message, now))
			if d.Reason != v1alpha1.ReasonInvalid {
				r.cut(errDecided)
			}
			continue
		case course.ActCall:
			if !e.mayCall(r) {
				until, err = e.park(ctx, r, now, course.FarFuture)
				break
			}
			if err = e.start(ctx, r, d, now); err == nil {
				continue
			}
		case course.ActWait:
			if d.Turn != (course.Turn{}) { // the operation ahead may need a slot that is kept for a call of this one
				e.withdraw(r, allOf)
			}
			switch {
			case d.Turn.Unknown:
				return d.Until, nil // without a write: the event of that state is on its way and wakes the run
			case d.Turn.Doubt != nil:
				if err := e.settleDoubt(ctx, d.Turn.Doubt); err != nil {
					return until, err
				}
				r.op = nil // the place may have changed
				continue
			case d.Turn.Behind != nil:
				e.queue(r, d.Turn.Behind.Key)
				e.showWait(ctx, r, d.Turn.Behind, course.Decision{}, now)
				continue // the operation ahead may have ended before queue
			case r.compiling(now):
				r.op = nil
				return now.Add(compileSoon), nil // without a write: the compiler wakes the run
			case !d.Turn.Still:
				e.showWait(ctx, r, nil, d, now)
			}
			until, err = e.park(ctx, r, now, d.Until)
		case course.ActFinish:
			r.apply(course.Finish(r.op, d.Phase, now))
			continue
		}
		switch {
		case errors.Is(err, call.ErrTooLarge) && (r.op == nil || !r.op.Terminal()):
			if r.refusal = err; len(r.flying) > 0 { // wait for the calls under way
				r.cut(errDecided)
				return course.FarFuture, nil
			}
		case errors.Is(err, errShort):
			if len(r.flying) == 0 {
				r.op = nil // apply unsaved changes to the store's state later
			}
			return deadline, err // the budget wakes the run
		case !errors.Is(err, errOutdated):
			return until, err
		}
	}
}

// park writes the unsaved changes before the flow parks. It returns the time at which the flow wakes up at the
// latest.
func (e *Executor) park(ctx context.Context, r *run, now, until time.Time) (time.Time, error) {
	e.stands(r)
	due := r.recordDue(now)
	if due.IsZero() && !e.draining(r.key.Namespace) {
		due = e.repeatsDue(r, now)
	}
	if !due.IsZero() {
		if due.Before(until) {
			until = due
		}
		return until, nil
	}
	if err := e.save(ctx, r); err != nil {
		return until, err
	}
	if waits(r.op) {
		if err := e.hold(ctx, r); err != nil {
			return until, err
		}
	}
	if len(r.flying) == 0 {
		r.op = nil
	}
	return until, nil
}

// rest finishes an operation that has ended: it removes the finalizer, and deletes the object after its time to live.
func (e *Executor) rest(ctx context.Context, r *run, now time.Time) (until time.Time, err error) {
	e.showOutcome(ctx, r.op)
	e.stands(r)
	if err := e.release(ctx, r); err != nil {
		return until, err
	}
	if r.op.Spec.TTLAfterFinished == nil || !r.op.Terminal() || r.op.Status.FinishedAt == nil ||
		r.op.DeletionTimestamp != nil {
		return until, nil
	}
	expiry := r.op.Status.FinishedAt.Add(r.op.Spec.TTLAfterFinished.Duration)
	if now.Before(expiry) {
		r.op = nil
		return expiry, nil
	}
	return until, e.remove(ctx, r)
}

// look marks the start of a look at the newest state, so that events from now on are not missed. It returns the calls
// that have returned, and reports whether the flag news was set. It allocates r.work.
func (e *Executor) look(r *run) (back []landing, news bool) {
	news = r.news.take()
	e.mu.Lock()
	defer e.mu.Unlock()
	r.missed = false
	if r.work == nil {
		r.work = &work{}
	}
	r.looking = true
	back, r.back = r.back, nil
	return back, news
}

// note updates the data of a run that other goroutines read: the counts for metrics, and the names of Webhooks whose
// changes wake the run.
func (e *Executor) note(r *run) {
	if !r.recorded {
		e.accept(r, r.op)
	}
	near := r.op.Deadline().Add(-r.op.Timeout() / 10).Unix()
	running, names := !r.op.Terminal(), e.changes.of(r.op)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[r.key.Namespace][r.key.Name] == r { // else it is not counted any more
		e.uncount(r)
		if r.phase, r.near = ended, near; running {
			r.phase = counted
			e.progress.enter(near)
		} else {
			e.leaveLine(r)
		}
	}
	r.names = names
	if r.recorded {
		r.accepted = nil // the status has it
	}
}

// settle prepares a run for parking. It marks the run as not busy if it has no call under way and no unrecorded
// result. It frees the work of an idle run.
func (e *Executor) settle(r *run) {
	r.owes = r.owes && len(r.unsaved) > 0
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(r.flying) == 0 && len(r.back) == 0 && !r.owes {
		e.leave(r)
	}
	if len(r.later) == 0 {
		r.later = nil
	}
	if r.idle() {
		r.work = nil
	}
	e.seen(r)
}

// find returns the facts about the Webhooks of a namespace that the plan needs.
func (e *Executor) find(namespace string) course.Lookup {
	return func(name string) (course.WebhookFacts, bool) {
		key := store.Key{Namespace: namespace, Name: name}
		times, ok := e.hooks.Times(key)
		switch {
		case !ok:
			return course.WebhookFacts{}, false
		case e.hooks.Is(key, e.quarantined):
			return course.WebhookFacts{Quarantined: true}, false
		}
		return e.releases.note(course.WebhookFacts{Timeout: times.Timeout, Retry: times.Retry, Poll: times.Poll}, key), true
	}
}
