package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// stepAdvance is the one step of the flow of an operation: it looks, decides, records, starts the calls that are due,
// and parks until there is news or the next thing is due.
const stepAdvance = "advance"

func (e *Executor) newFlow() *flow.Flow[run] {
	return flow.New("operation", flow.Step(stepAdvance, e.advance))
}

// trouble is the back-off while the API server does not take our requests.
var trouble = backoff.Policy{Base: 500 * time.Millisecond, Cap: 30 * time.Second}

func (e *Executor) advance(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	r := f.Packet
	until, err := e.step(ctx, r)
	if errors.Is(err, errShort) {
		err = nil
	} else if r.short || r.paid.count > 0 { // whoever writes nothing now does not keep others from it
		e.unpay(r)
	}
	e.settle(r)
	switch {
	case errors.Is(err, errGone):
		return f.End()
	case err == nil && until.IsZero():
		return f.End()
	case err == nil:
		r.tries = 0
	case ctx.Err() != nil:
		return f.Fail(context.Cause(ctx))
	default:
		r.tries++
		wait := trouble.Delay(int(r.tries)-1, rand.Float64)
		until = e.now().Add(wait)
		e.log.WarnContext(ctx, "operation has to wait", "operation", r.key, "error", err, "wait", wait)
	}
	if !until.Before(farFuture) {
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
		now := e.now()
		e.land(ctx, r, back, now)
		e.note(r)
		if r.refusal != nil {
			e.outgrown(r, r.refusal, now)
			r.refusal = nil
		}
		deadline := farFuture
		if end := r.op.Deadline(); now.Before(end) {
			deadline = end
		}
		find := e.find(r.key.Namespace)
		if len(r.refused) > 0 {
			e.withdraw(r, unwanted(r.op, find))
		}
		d := plan(r.op, surroundings{
			find: find, flying: r.flying, refused: r.refused, later: r.later,
			turn: func(op *v1alpha1.Operation) turn { return e.turn(r, op) },
		}, now)
		switch d.act {
		case actNothing:
			if len(r.unsaved) > 0 && r.op.Terminal() { // its end, which is due until it is written
				if err = e.save(ctx, r); err == nil {
					e.ended(ctx, r.op)
					continue
				}
				break
			}
			until, err = e.rest(ctx, r, now)
		case actBegin:
			r.apply(begin(now, e.placeOf))
			r.later = nil
			e.began(ctx, r.op)
			continue
		case actFail:
			r.apply(fail(r.op.EffectiveID(), d.reason, d.message, now))
			if d.reason != v1alpha1.ReasonInvalid {
				r.cut(errDecided)
			}
			continue
		case actCall:
			if !e.mayCall(r) {
				until, err = e.park(ctx, r, now, farFuture)
				break
			}
			if err = e.start(ctx, r, d, now); err == nil {
				continue
			}
		case actWait:
			if d.turn != (turn{}) { // who goes first may need the place that is kept for a call of this one
				e.withdraw(r, allOf)
			}
			switch {
			case d.turn.unknown:
				return d.until, nil // with nothing written: the event of what is known already wakes us
			case d.turn.doubt != nil:
				if err := e.settleDoubt(ctx, d.turn.doubt); err != nil {
					return until, err
				}
				r.op = nil // it may have got another place
				continue
			case d.turn.behind != nil:
				e.queue(r, d.turn.behind.key)
				e.showWait(ctx, r, d.turn.behind, decision{}, now)
				continue // it may have ended before we were in line
			case r.compiling(now):
				r.op = nil
				return now.Add(compileSoon), nil // with nothing written: it is woken
			case !d.turn.still:
				e.showWait(ctx, r, nil, d, now)
			}
			until, err = e.park(ctx, r, now, d.until)
		case actFinish:
			r.apply(finish(r.op.EffectiveID(), d.phase, now))
			continue
		}
		switch {
		case errors.Is(err, call.ErrTooLarge) && (r.op == nil || !r.op.Terminal()):
			if r.refusal = err; len(r.flying) > 0 { // what is under way comes home first
				r.cut(errDecided)
				return farFuture, nil
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

// start gets what the calls that are due need, records the attempts unless the object is record enough (O2), and starts
// them.
func (e *Executor) start(ctx context.Context, r *run, d decision, now time.Time) (err error) {
	if fence := e.policy.Fence; fence != nil {
		if err := fence(); err != nil {
			return fmt.Errorf("cannot make a call: %w", err)
		}
	}
	if len(r.op.Spec.CompensateWebhookIDs) > 0 {
		if err := e.hold(ctx, r); err != nil {
			return err
		}
	}
	if !r.confirmed && slices.ContainsFunc(d.due, func(t target) bool { return begun(entry(&r.op.Status, t)) }) {
		return e.reload(ctx, r) // a predecessor may have recorded what became of it
	}
	if d.due[0].purpose == webhook.Main && !r.entered && r.op.Status.AcceptedVersion != r.place {
		return nil // it has another place now, so its turn is to be found out again
	}
	defer func(unsaved int) {
		if err != nil { // what the next look finds may be that others go first, or comes late: no attempt is recorded that was not made
			r.dropSince(unsaved)
		}
	}(len(r.unsaved))
	hooks := e.ready(r, d.due, now)
	if len(hooks) == 0 {
		return nil // what is due is not compiled yet, or was judged without a call
	}
	unrecorded := e.needsNoRecord(r, d.due, hooks)
	records := func(t target) bool { return !begun(entry(&r.op.Status, t)) }
	if (len(r.unsaved) > 0 || slices.ContainsFunc(d.due, records)) && !e.pay(r) {
		e.withdraw(r, allOf) // a place that is kept for it others can use
		return errShort
	}
	var ready []*flight
	defer func() {
		if err != nil {
			for _, f := range ready {
				f.permit.Release()
				e.home(r, f.hook)
			}
		}
	}()
	for _, t := range d.due {
		hook := hooks[t]
		if hook == nil {
			continue
		}
		if withheld := e.withheld(r.op, t, now); withheld != nil {
			r.apply(withheld)
			continue
		}
		permit := e.admit(r, t, hook, now)
		if permit == nil {
			continue
		}
		f := &flight{target: t, hook: hook, permit: permit}
		if en := entry(&r.op.Status, t); begun(en) {
			f.attempt = en.AttemptID
			if unkeyed(en) {
				r.apply(key(r.op, t))
			}
		} else {
			f.attempt = newAttempt(r.op, t)
			r.apply(attempt(r.op, t, f.attempt, now))
		}
		ready = append(ready, f)
	}
	if len(ready) == 0 {
		return nil // what is due waits for its turn
	}
	if !r.outdated {
		e.showWait(ctx, r, nil, d, now)
	}
	if unrecorded {
		r.entered, r.unrecorded = true, now
		e.launch(ctx, r, ready[0])
		return nil
	}
	if err := e.save(ctx, r); err != nil {
		return err
	}
	for _, f := range ready {
		if unkeyed(entry(&r.op.Status, f.target)) {
			return e.outdated(ctx, r, now)
		}
	}
	r.outdated = false
	for _, f := range ready {
		e.launch(ctx, r, f)
	}
	return nil
}

// ready returns the Webhooks of the calls that are due and can be made. The others are judged here, or wait until their
// Webhook is compiled.
func (e *Executor) ready(r *run, due []target, now time.Time) map[target]*webhook.Compiled {
	hooks := make(map[target]*webhook.Compiled, len(due))
	for _, t := range due {
		key := store.Key{Namespace: r.key.Namespace, Name: t.id}
		if timeout, ok := e.hooks.timeout(key); ok {
			if expired := expired(r.op, t, timeout, now); expired != nil {
				r.apply(expired)
				continue
			}
		}
		hook, err := e.hooks.get(key, &r.news)
		if errors.Is(err, errCompiling) {
			why := refusal{until: farFuture, share: shareCompile, since: r.refused[t].since}
			if why.since.IsZero() {
				why.since = now
			}
			r.refuse(t, why)
			continue
		}
		if err == nil {
			err = e.possible(t, hook)
		}
		if err != nil {
			r.apply(judged(r.op, t, webhookInvalid(err), now))
			continue
		}
		hooks[t] = hook
	}
	return hooks
}

// begun tells whether a call that is due was begun: it is to be polled, or to be made again as the attempt that is
// recorded.
func begun(en *v1alpha1.WebhookCallStatus) bool {
	return en != nil && en.AttemptID != "" && en.StartedAt != nil && (en.NextAttemptAt == nil || en.WebhookPollURL != "")
}

// park writes what is not written, before the flow is parked until something happens, at the latest until the time that
// it returns.
func (e *Executor) park(ctx context.Context, r *run, now, until time.Time) (time.Time, error) {
	if due := r.recordDue(now); !due.IsZero() {
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
		r.op, r.flying = nil, nil
	}
	if len(r.refused) == 0 {
		r.refused = nil
	}
	return until, nil
}

// rest is what is left of an operation that has ended: its finalizer is taken away, and it is deleted when its time to
// live has passed.
func (e *Executor) rest(ctx context.Context, r *run, now time.Time) (until time.Time, err error) {
	if err := e.release(ctx, r); err != nil {
		return until, err
	}
	if r.op.Spec.TTLAfterFinished == nil || !r.op.Terminal() || r.op.Status.FinishedAt == nil || r.op.DeletionTimestamp != nil {
		return until, nil
	}
	expiry := r.op.Status.FinishedAt.Add(r.op.Spec.TTLAfterFinished.Duration)
	if now.Before(expiry) {
		r.op = nil
		return expiry, nil
	}
	return until, e.remove(ctx, r)
}

// expired returns the change that ends a webhook whose own timeout has passed, nil if it has not.
func expired(op *v1alpha1.Operation, t target, timeout time.Duration, now time.Time) change {
	en := entry(&op.Status, t)
	if en == nil || en.StartedAt == nil || now.Before(en.StartedAt.Add(timeout)) {
		return nil
	}
	return judged(op, t, verdict{
		state: v1alpha1.PhaseFailed, code: int(en.LastStatusCode), reason: v1alpha1.ReasonTimedOut,
		message: "webhook " + t.id + " was not finished within " + timeout.String(),
	}, now)
}

// withheld returns the change that gives up a call that cannot change the outcome, since its credentials were not
// released while the operation might have taken; nil if they are.
func (e *Executor) withheld(op *v1alpha1.Operation, t target, now time.Time) change {
	why, _ := e.releases.withheld(store.Key{Namespace: op.Namespace, Name: t.id})
	if why == nil || t.purpose == webhook.Main || now.Before(op.Deadline()) {
		return nil
	}
	return judged(op, t, verdict{
		state: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonNotReleased, message: "webhook " + t.id + ": " + why.Error(),
	}, now)
}

// micro is a time as a status holds it, in whole microseconds, and never an earlier one: what waits for it, or counts
// from it, does not end too soon.
func micro(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.Add(time.Microsecond - time.Nanosecond).Truncate(time.Microsecond))
	return &m
}
