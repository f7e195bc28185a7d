package executor

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// stepAdvance is the only step of the flow of an operation. It reads the state, decides, records, and starts the
// calls that are due. Then it parks until an event arrives or the next action is due.
const stepAdvance = "advance"

// stepper runs the flow of each operation. It asks course.Plan which action is due, and has the other parts take it. It
// has no state: that of an operation is its run.
type stepper struct {
	// holds reports whether this executor works on a namespace.
	holds func(namespace string) bool
	// draining reports whether calls for a namespace are not started any more.
	draining func(namespace string) bool
	// namesOf returns the names of the Webhooks that an operation may call.
	namesOf func(op *v1alpha1.Operation) nameSet

	runs      *runs
	writes    draftWriter
	turns     turns
	hooks     hookFacts
	starter   *starter
	reports   reports
	busy      busyOperations
	troubles  *troubles
	stuck     stuckOperations
	paces     *paces
	endpoints breakerStates
	traces    traces
	log       *slog.Logger
	now       func() time.Time
}

// draftWriter reads and writes the operation of a draft; see writes.
type draftWriter interface {
	refresh(ctx context.Context, d draft) error
	reload(ctx context.Context, d draft) error
	save(ctx context.Context, d draft) error
	hold(ctx context.Context, d draft) error
	holdWaiting(ctx context.Context, d draft) error
	release(ctx context.Context, d draft) error
	remove(ctx context.Context, d draft) error
	pay(d draft) bool
	refund(d draft)
}

// turns decides which of the operations that exclude each other goes first; see locks and lines.
type turns interface {
	turn(n *news, op *v1alpha1.Operation, recorded bool) (t course.Turn, alone bool)
	placeOf(op *v1alpha1.Operation) string
	resolveDoubt(ctx context.Context, doubt *course.Doubt) error
	join(n *news, behind store.Key)
	leave(n *news)
	behind(n *news) (key store.Key, waits bool)
	wake(key store.Key)
}

// turnTaking implements turns.
type turnTaking struct {
	*locks
	*lines
}

// reports tells users about the course of an operation; see reporter.
type reports interface {
	began(ctx context.Context, op *v1alpha1.Operation)
	showWait(
		ctx context.Context, d draft, share string, behind *course.Predecessor, decision course.Decision, now time.Time,
	)
	called(f *flight, result webhook.Result)
	judged(ctx context.Context, op *v1alpha1.Operation, f *flight, result webhook.Result, message string)
	outdatedCRD(ctx context.Context, op *v1alpha1.Operation)
	ended(ctx context.Context, op *v1alpha1.Operation)
}

// traces makes the spans of operations; see spans.
type traces interface {
	next(ctx context.Context, op *v1alpha1.Operation) context.Context
	passOn(ctx context.Context, op *v1alpha1.Operation) context.Context
	showOutcome(ctx context.Context, op *v1alpha1.Operation)
}

// busyOperations knows the operations for which a drain waits; see drain.
type busyOperations interface {
	enter(n *news) (ok bool)
	leave(n *news)
}

// stuckOperations counts the stuck operations; see tally.
type stuckOperations interface {
	set(key store.Key, cause why.Type)
	setFailing(key store.Key, failing *trouble, short bool)
}

// breakerStates returns the states of the breakers of Webhooks.
type breakerStates interface {
	Breaker(namespace, name string) webhook.BreakerStatus
}

// newFlow returns the flow of operations.
func (s *stepper) newFlow() *flow.Flow[run] {
	return flow.New("operation", flow.Step(stepAdvance, s.advance))
}

// repeated is the back-off while requests to the API server fail.
var repeated = backoff.Policy{Base: 500 * time.Millisecond, Cap: 30 * time.Second}

func (s *stepper) advance(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	r := f.Packet
	if s.moves(r) {
		return endMoved(ctx, f)
	}
	until, err := s.step(ctx, r)
	if errors.Is(err, errShort) {
		s.stuck.setFailing(r.key, s.troubles.get(&r.news), true)
		err = nil
	} else if r.short || r.paid.Count > 0 { // a run that writes nothing now must not keep others from writing
		s.writes.refund(r.draft())
	}
	if err != nil {
		r.troubled = true
	} else if r.troubled {
		r.troubled = false
		s.troubles.remove(&r.news)
	}
	s.park(r)
	switch {
	case errors.Is(err, errGone):
		return f.End()
	case err == nil && until.IsZero():
		return f.End()
	case s.moves(r):
		return endMoved(ctx, f)
	case err == nil:
		r.tries = 0
	case ctx.Err() != nil:
		return f.Fail(context.Cause(ctx))
	default:
		r.tries++
		wait := repeated.Delay(int(r.tries)-1, rand.Float64)
		until = s.now().Add(wait)
		s.troubles.failed(&r.news, err, int(r.tries), s.now(), until)
		s.stuck.setFailing(r.key, s.troubles.get(&r.news), false)
		s.log.WarnContext(ctx, "operation has to wait", "key", r.key, "error", err, "wait", wait)
	}
	if !until.Before(course.FarFuture) {
		return f.Await(&r.news).Then(stepAdvance)
	}
	return f.Await(&r.news, flow.Until(time.Now().Add(until.Sub(s.now())))).Then(stepAdvance)
}

// step brings the operation to its next wait, or to its end. It returns the time until which the run has nothing to
// do; zero: the run has ended. With errShort, the run waits for the namespace's share of writes meanwhile.
func (s *stepper) step(ctx context.Context, r *run) (until time.Time, err error) {
	for first := true; ; first = false {
		returned, woken := s.runs.drainEvents(r)
		if first || woken { // a slot may be kept for a call
			r.askAgain()
		}
		err = s.writes.refresh(ctx, r.draft())
		if r.replaced {
			r.cut(errOver)
		}
		if err != nil {
			s.runs.putBack(r, returned)
			return until, err
		}
		if r.replaced {
			r.replaced = false
			ctx = s.traces.next(ctx, r.op)
		}
		now := s.now()
		s.starter.applyResults(ctx, r, returned, now)
		s.publish(r)
		if r.refusal != nil {
			failTooLarge(&r.edit, r.refusal, now)
			r.refusal = nil
		}
		deadline := course.FarFuture
		if end := r.op.Deadline(); now.Before(end) {
			deadline = end
		}
		find := s.hooks.find(r.key.Namespace)
		if len(r.refused) > 0 {
			s.starter.withdraw(r, unwanted(r.op, find))
		}
		d := course.Plan(r.op, course.Surroundings{
			Find: find, Flying: r.isFlying, NotBefore: r.notBefore,
			Turn: func(op *v1alpha1.Operation) course.Turn { return s.turn(r, op) },
		}, now)
		switch d.Act {
		case course.ActNothing:
			if len(r.unsaved) > 0 && r.op.Terminal() { // the terminal status is not persisted yet
				end := *r.op // save may adopt the next request into r.op
				if err = s.writes.save(ctx, r.draft()); err == nil {
					s.reports.ended(ctx, &end)
					continue
				}
				break
			}
			until, err = s.cleanUp(ctx, r, now)
		case course.ActBegin:
			r.apply(course.Begin(now, s.turns.placeOf))
			r.later = nil
			s.reports.began(ctx, r.op)
			continue
		case course.ActFail:
			r.apply(course.Fail(r.op.EffectiveID(), d.Reason, d.Message, now))
			if d.Reason != v1alpha1.ReasonInvalid {
				r.cut(errDecided)
			}
			continue
		case course.ActCall:
			if !s.mayCall(r) {
				until, err = s.record(ctx, r, now, course.FarFuture)
				break
			}
			if err = s.starter.start(ctx, r, d, now); err == nil {
				continue
			}
		case course.ActWait:
			if d.Turn != (course.Turn{}) { // the operation ahead may need a slot that is kept for a call of this one
				s.starter.withdraw(r, allOf)
			}
			switch {
			case d.Turn.Unknown:
				return d.Until, nil // without a write: the event of that state is on its way and wakes the run
			case d.Turn.Doubt != nil:
				if err := s.turns.resolveDoubt(ctx, d.Turn.Doubt); err != nil {
					return until, err
				}
				r.op = nil // the place may have changed
				continue
			case d.Turn.Behind != nil:
				s.turns.join(&r.news, d.Turn.Behind.Key)
				s.reports.showWait(ctx, r.draft(), r.share(), d.Turn.Behind, course.Decision{}, now)
				continue // the operation ahead may have ended before join
			case r.compiling(now):
				r.op = nil
				return now.Add(compileSoon), nil // without a write: the compiler wakes the run
			case !d.Turn.Still:
				s.reports.showWait(ctx, r.draft(), r.share(), nil, d, now)
			}
			until, err = s.record(ctx, r, now, d.Until)
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
func (s *stepper) record(ctx context.Context, r *run, now, until time.Time) (time.Time, error) {
	s.tally(r)
	due := r.recordDue(now)
	if due.IsZero() && !s.draining(r.key.Namespace) {
		due = s.paces.repeatsDue(r.draft(), now)
	}
	if !due.IsZero() {
		if due.Before(until) {
			until = due
		}
		if !r.expectsPoll() || s.draining(r.key.Namespace) {
			return until, nil
		}
		return until, s.writes.hold(ctx, r.draft())
	}
	if err := s.writes.save(ctx, r.draft()); err != nil {
		return until, err
	}
	if r.replaced {
		return until, errOutdated
	}
	if err := s.writes.holdWaiting(ctx, r.draft()); err != nil {
		return until, err
	}
	if len(r.flying) == 0 {
		r.op = nil
	}
	return until, nil
}

// cleanUp finishes an operation that has ended. It removes the finalizer, and deletes the object after its time to
// live.
func (s *stepper) cleanUp(ctx context.Context, r *run, now time.Time) (until time.Time, err error) {
	s.traces.showOutcome(ctx, r.op)
	s.tally(r)
	if err := s.writes.release(ctx, r.draft()); err != nil {
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
	return until, s.writes.remove(ctx, r.draft())
}

// turn decides whether an operation may make its first call. An operation that has made a call has had its turn.
func (s *stepper) turn(r *run, op *v1alpha1.Operation) (t course.Turn) {
	if r.alone = false; r.entered {
		return course.Turn{}
	}
	r.place = op.Status.AcceptedVersion
	t, r.alone = s.turns.turn(&r.news, op, r.recorded)
	return t
}

// publish updates the data of a run that other goroutines read.
func (s *stepper) publish(r *run) {
	if !r.recorded {
		accept(s.runs, s.turns, r, r.op)
	}
	running := !r.op.Terminal()
	if !running {
		s.turns.leave(&r.news)
	}
	s.runs.update(r, running, r.op.Deadline().Add(-r.op.Timeout()/10).Unix(), s.namesOf(r.op))
}

// tally records the cause by which the operation of a run that is about to park is stuck.
func (s *stepper) tally(r *run) {
	if r.op == nil || r.op.Terminal() {
		s.stuck.set(r.key, "")
		return
	}
	ahead, waits := s.turns.behind(&r.news)
	s.stuck.set(r.key, r.firstCause(waits && ahead != stale, s.endpoints, s.now))
}

// mayCall reports whether a run may make calls now. If so, it marks the run as busy, until park finds otherwise.
func (s *stepper) mayCall(r *run) bool {
	if !s.holds(r.key.Namespace) || !s.busy.enter(&r.news) {
		return false
	}
	r.busy = true
	return true
}

// park prepares a run for parking. It marks the run as not busy if it has no call under way and no unrecorded result.
func (s *stepper) park(r *run) {
	if r.replaced { // a write has found another request
		r.cut(errOver)
	}
	r.owes = r.owes && len(r.unsaved) > 0
	if r.busy && len(r.flying) == 0 && !r.owes { // a returned call is flying until its result is applied
		r.busy = false
		s.busy.leave(&r.news)
	}
	s.runs.park(r)
}

// moves reports whether a run has to end because its slot leaves. A run with calls under way, or with unrecorded
// results, stays.
func (s *stepper) moves(r *run) bool { return !r.busy && !s.holds(r.key.Namespace) }

// endMoved ends a flow that continues in another replica.
func endMoved(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	if fiber, ok := flow.FromContext(ctx); ok {
		fiber.Cancel(errMoved)
	}
	return f.End()
}
