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

// stepAdvance is the one step of the flow of an operation: it looks, decides, records, starts the calls that are due,
// and parks until there is news or the next thing is due.
const stepAdvance = "advance"

func (e *Executor) newFlow() *flow.Flow[run] {
	return flow.New("operation", flow.Step(stepAdvance, e.advance))
}

// repeated is the back-off while the API server does not take our requests.
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
	} else if r.short || r.paid.Count > 0 { // whoever writes nothing now does not keep others from it
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

// step brings the operation to the next wait or to its end. It returns until when there is nothing to do, the zero time
// if that is for ever; with errShort, the namespace's share of writes is waited for meanwhile.
func (e *Executor) step(ctx context.Context, r *run) (until time.Time, err error) {
	for first := true; ; first = false {
		back, news := e.look(r)
		if first || news { // it may be that a place is kept for a call
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
			if len(r.unsaved) > 0 && r.op.Terminal() { // its end, which is due until it is written
				end := *r.op // r.op may be about the next request by then
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
			if d.Turn != (course.Turn{}) { // who goes first may need the place that is kept for a call of this one
				e.withdraw(r, allOf)
			}
			switch {
			case d.Turn.Unknown:
				return d.Until, nil // with nothing written: the event of what is known already wakes us
			case d.Turn.Doubt != nil:
				if err := e.settleDoubt(ctx, d.Turn.Doubt); err != nil {
					return until, err
				}
				r.op = nil // it may have got another place
				continue
			case d.Turn.Behind != nil:
				e.queue(r, d.Turn.Behind.Key)
				e.showWait(ctx, r, d.Turn.Behind, course.Decision{}, now)
				continue // it may have ended before we were in line
			case r.compiling(now):
				r.op = nil
				return now.Add(compileSoon), nil // with nothing written: it is woken
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
			if r.refusal = err; len(r.flying) > 0 { // what is under way comes home first
				r.cut(errDecided)
				return course.FarFuture, nil
			}
		case errors.Is(err, errShort):
			if len(r.flying) == 0 {
				r.op = nil // what is not written yet is made again on what the store has
			}
			return deadline, err // it is woken when it is its turn
		case !errors.Is(err, errOutdated):
			return until, err
		}
	}
}

// park writes what is not written, before the flow is parked until something happens, at the latest until the time that
// it returns.
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

// rest is what is left of an operation that has ended: its finalizer is taken away, and it is deleted when its time to
// live has passed.
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

// look notes that a run is about to look at the newest state, so that what happened before is not missed, and returns
// the calls that have come back, and whether there was news. From now on the run has what it works with.
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

// note keeps what others look at of a run: the metrics, and who wakes those that name a Webhook.
func (e *Executor) note(r *run) {
	if !r.recorded {
		e.accept(r, r.op)
	}
	near := r.op.Deadline().Add(-r.op.Timeout() / 10).Unix()
	running, names := !r.op.Terminal(), e.stirs.of(r.op)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[r.key.Namespace][r.key.Name] == r { // else it counts no more
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
		r.accepted = nil // it stands in the status
	}
}

// settle notes whether a run that is about to park has calls under way, or has brought home what is not recorded yet.
// A run that has nothing to do lets go of what it works with.
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

// find returns what the plan needs to know of the Webhooks of a namespace.
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
