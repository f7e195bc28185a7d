package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

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
		e.stuck.setFailing(r.key, e.troubles.get(&r.news), true)
		err = nil
	} else if r.short || r.paid.Count > 0 { // a run that writes nothing now must not keep others from writing
		e.writes.refund(r.draft())
	}
	if err != nil {
		r.troubled = true
	} else if r.troubled {
		r.troubled = false
		e.troubles.remove(&r.news)
	}
	e.park(r)
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
		e.troubles.failed(&r.news, err, int(r.tries), e.now(), until)
		e.stuck.setFailing(r.key, e.troubles.get(&r.news), false)
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
		returned, woken := e.runs.drainEvents(r)
		if first || woken { // a slot may be kept for a call
			r.askAgain()
		}
		err = e.writes.refresh(ctx, r.draft())
		if r.replaced {
			r.cut(errOver)
		}
		if err != nil {
			e.runs.putBack(r, returned)
			return until, err
		}
		if r.replaced {
			r.replaced = false
			ctx = e.spans.next(ctx, r.op)
		}
		now := e.now()
		e.applyResults(ctx, r, returned, now)
		e.publish(r)
		if r.refusal != nil {
			failTooLarge(&r.edit, r.refusal, now)
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
				if err = e.writes.save(ctx, r.draft()); err == nil {
					e.reports.ended(ctx, &end)
					continue
				}
				break
			}
			until, err = e.cleanUp(ctx, r, now)
		case course.ActBegin:
			r.apply(course.Begin(now, e.locks.placeOf))
			r.later = nil
			e.reports.began(ctx, r.op)
			continue
		case course.ActFail:
			r.apply(course.Fail(r.op.EffectiveID(), d.Reason, d.Message, now))
			if d.Reason != v1alpha1.ReasonInvalid {
				r.cut(errDecided)
			}
			continue
		case course.ActCall:
			if !e.mayCall(r) {
				until, err = e.record(ctx, r, now, course.FarFuture)
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
				if err := e.locks.resolveDoubt(ctx, d.Turn.Doubt); err != nil {
					return until, err
				}
				r.op = nil // the place may have changed
				continue
			case d.Turn.Behind != nil:
				e.lines.join(&r.news, d.Turn.Behind.Key)
				e.showWait(ctx, r, d.Turn.Behind, course.Decision{}, now)
				continue // the operation ahead may have ended before join
			case r.compiling(now):
				r.op = nil
				return now.Add(compileSoon), nil // without a write: the compiler wakes the run
			case !d.Turn.Still:
				e.showWait(ctx, r, nil, d, now)
			}
			until, err = e.record(ctx, r, now, d.Until)
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

// record writes the unsaved changes before the flow parks. It returns the time at which the flow wakes up at the
// latest.
func (e *Executor) record(ctx context.Context, r *run, now, until time.Time) (time.Time, error) {
	e.tally(r)
	due := r.recordDue(now)
	if due.IsZero() && !e.draining(r.key.Namespace) {
		due = e.paces.repeatsDue(r.draft(), now)
	}
	if !due.IsZero() {
		if due.Before(until) {
			until = due
		}
		return until, nil
	}
	if err := e.writes.save(ctx, r.draft()); err != nil {
		return until, err
	}
	if r.replaced {
		return until, errOutdated
	}
	if waits(r.op) {
		if err := e.writes.hold(ctx, r.draft()); err != nil {
			return until, err
		}
	}
	if len(r.flying) == 0 {
		r.op = nil
	}
	return until, nil
}

// cleanUp finishes an operation that has ended. It removes the finalizer, and deletes the object after its time to
// live.
func (e *Executor) cleanUp(ctx context.Context, r *run, now time.Time) (until time.Time, err error) {
	e.spans.showOutcome(ctx, r.op)
	e.tally(r)
	if err := e.writes.release(ctx, r.draft()); err != nil {
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
	return until, e.writes.remove(ctx, r.draft())
}

// showWait sets the reason for which the operation waits in its condition Ready, unless it is there already. It writes
// nothing: the change is part of the next write.
func (e *Executor) showWait(ctx context.Context, r *run, behind *course.Predecessor, d course.Decision, now time.Time) {
	w := waitOf(r.key.Namespace, behind, d, r.share(), e.quarantine.hasNamed)
	shown := meta.FindStatusCondition(r.op.Status.Conditions, v1alpha1.ConditionReady)
	if shown == nil || shown.Message == w.message {
		return
	}
	before := shown.Reason
	r.apply(course.Await(r.op.EffectiveID(), w.reason, w.message, now))
	e.reports.waits(ctx, r.op, w, before)
}

// turn decides whether an operation may make its first call. An operation that has made a call has had its turn.
func (e *Executor) turn(r *run, op *v1alpha1.Operation) (t course.Turn) {
	if r.alone = false; r.entered {
		return course.Turn{}
	}
	r.place = op.Status.AcceptedVersion
	t, r.alone = e.locks.turn(&r.news, op, r.recorded)
	return t
}

// publish updates the data of a run that other goroutines read.
func (e *Executor) publish(r *run) {
	if !r.recorded {
		e.accept(r, r.op)
	}
	running := !r.op.Terminal()
	if !running {
		e.lines.leave(&r.news)
	}
	e.runs.update(r, running, r.op.Deadline().Add(-r.op.Timeout()/10).Unix(), e.changes.of(r.op))
}

// accept records the version at which it has seen the present request of an operation, unless a version is known
// already.
func (e *Executor) accept(r *run, op *v1alpha1.Operation) {
	if course.Ordinary(op) && e.runs.accept(r, op) {
		e.lines.wake(r.key) // a lock may be waiting for that
	}
}

// tally records the cause by which the operation of a run that is about to park is stuck.
func (e *Executor) tally(r *run) {
	if r.op == nil || r.op.Terminal() {
		e.stuck.set(r.key, "")
		return
	}
	ahead, waits := e.lines.behind(&r.news)
	e.stuck.set(r.key, firstCause(r, waits && ahead != stale, e.webhooks, e.now))
}

// mayCall reports whether a run may make calls now. If so, it marks the run as busy, until park finds otherwise.
func (e *Executor) mayCall(r *run) bool {
	if !e.own.holds(r.key.Namespace) || !e.drain.enter(&r.news) {
		return false
	}
	r.busy = true
	return true
}

// draining reports whether calls for a namespace are not started any more.
func (e *Executor) draining(namespace string) bool {
	return !e.own.holds(namespace) || e.drain.hasBegun()
}

// park prepares a run for parking. It marks the run as not busy if it has no call under way and no unrecorded result.
func (e *Executor) park(r *run) {
	if r.replaced { // a write has found another request
		r.cut(errOver)
	}
	r.owes = r.owes && len(r.unsaved) > 0
	if r.busy && len(r.flying) == 0 && !r.owes { // a returned call is flying until its result is applied
		r.busy = false
		e.drain.leave(&r.news)
	}
	e.runs.park(r)
}

// find returns the facts about the Webhooks of a namespace that the plan needs.
func (e *Executor) find(namespace string) course.Lookup {
	return func(name string) (course.WebhookFacts, bool) {
		key := store.Key{Namespace: namespace, Name: name}
		times, ok := e.hooks.Times(key)
		switch {
		case !ok:
			return course.WebhookFacts{}, false
		case e.hooks.Is(key, e.quarantine.has):
			return course.WebhookFacts{Quarantined: true}, false
		}
		return e.releases.addTo(course.WebhookFacts{Timeout: times.Timeout, Retry: times.Retry, Poll: times.Poll}, key), true
	}
}
