package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/webhook"
)

// The steps of the flow of one operation. advance decides and records; call makes the calls that are due and returns to
// it; until then the flow is parked.
const (
	stepAdvance = "advance"
	stepCall    = "call"
)

func (e *Executor) newFlow() *flow.Flow[run] {
	return flow.New("operation",
		flow.Step(stepAdvance, e.advance, flow.To(stepCall)),
		flow.Step(stepCall, e.call, flow.To(stepAdvance)),
	)
}

// trouble is the back-off while the API server does not take our requests.
var trouble = backoff.Policy{Base: 500 * time.Millisecond, Cap: 30 * time.Second}

func (e *Executor) advance(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	r := f.Packet
	next, err := e.step(ctx, f)
	switch {
	case err == nil:
		r.tries = 0
		return next
	case ctx.Err() != nil:
		return f.Fail(err)
	default:
		r.tries++
		wait := trouble.Delay(r.tries-1, rand.Float64)
		e.log.WarnContext(ctx, "operation has to wait", "operation", r.key, "error", err, "wait", wait)
		return f.Retry(wait)
	}
}

// step brings the operation to the next call, wait or end.
func (e *Executor) step(ctx context.Context, f *flow.Fiber[run]) (flow.Next, error) {
	r := f.Packet
	for {
		e.look(r.live)
		if err := e.refresh(ctx, r); err != nil {
			return flow.Next{}, err
		}
		if r.op == nil {
			return f.End(), nil
		}
		now := e.now()
		d := plan(r.op, e.find(r.key.Namespace), now)
		var err error
		switch d.act {
		case actNothing:
			return e.rest(ctx, f, now)
		case actBegin:
			r.apply(begin(now))
			e.began(ctx, r.op)
			continue
		case actFail:
			r.apply(fail(r.op.EffectiveID(), d.reason, d.message, now))
			continue
		case actCall:
			wait, err := e.prepare(ctx, r, d, now)
			if errors.Is(err, errOutdated) {
				continue
			}
			if err != nil {
				return flow.Next{}, err
			}
			if len(r.due) > 0 {
				return f.Goto(stepCall), nil
			}
			if wait.IsZero() {
				continue // what was due could not be made at all and is judged already
			}
			return e.park(ctx, f, wait)
		case actWait:
			return e.park(ctx, f, d.until)
		case actFinish:
			r.apply(finish(r.op.EffectiveID(), d.phase, now))
			if err = e.save(ctx, r); err == nil {
				e.ended(ctx, r.op)
			}
		}
		if err != nil && !errors.Is(err, errOutdated) {
			return flow.Next{}, err
		}
	}
}

// prepare gets permits for the calls that are due and records the attempts. It returns when to ask again for those that
// got none; the zero time if there are none such.
func (e *Executor) prepare(ctx context.Context, r *run, d decision, now time.Time) (wait time.Time, err error) {
	r.due = nil
	if len(r.op.Spec.CompensateWebhookIDs) > 0 {
		if err := e.hold(ctx, r); err != nil {
			return wait, err
		}
	}
	defer func() {
		if err != nil {
			for _, p := range r.due {
				p.permit.Release()
			}
			r.due = nil
		}
	}()
	for _, t := range d.due {
		hook, err := e.hooks.get(r.key.Namespace, t.id)
		if err != nil {
			r.apply(judged(r.op, t, webhookInvalid(err), now))
			continue
		}
		if expired := e.expired(r.op, t, hook, now); expired != nil {
			r.apply(expired)
			continue
		}
		permit, again := e.webhooks.Acquire(hook, t.callID(r.op), r.live.news.Set)
		if permit == nil {
			if at := now.Add(again.For); wait.IsZero() || at.Before(wait) {
				wait = at
			}
			continue
		}
		p := permitted{target: t, hook: hook, permit: permit}
		if en := entry(&r.op.Status, t); en == nil || en.NextAttemptAt != nil && en.WebhookPollURL == "" || en.AttemptID == "" {
			p.attempt = uuid.NewString()
			r.apply(attempt(r.op, t, p.attempt, now))
		} else {
			p.attempt = en.AttemptID
		}
		r.due = append(r.due, p)
	}
	return wait, e.save(ctx, r)
}

// park writes what is not written and parks the flow until then, or until there is news.
func (e *Executor) park(ctx context.Context, f *flow.Fiber[run], until time.Time) (flow.Next, error) {
	r := f.Packet
	if err := e.save(ctx, r); err != nil {
		if errors.Is(err, errOutdated) {
			return f.Goto(stepAdvance), nil
		}
		return flow.Next{}, err
	}
	if err := e.hold(ctx, r); err != nil {
		if errors.Is(err, errOutdated) {
			return f.Goto(stepAdvance), nil
		}
		return flow.Next{}, err
	}
	r.op = nil
	waits := []flow.Wait{&r.live.news}
	if until.Before(farFuture) {
		waits = append(waits, flow.Until(until))
	}
	return f.Await(waits...).Then(stepAdvance), nil
}

// rest is what is left of an operation that has ended: its finalizer is taken away, and it is deleted when its time to
// live has passed.
func (e *Executor) rest(ctx context.Context, f *flow.Fiber[run], now time.Time) (flow.Next, error) {
	r := f.Packet
	if err := e.release(ctx, r); err != nil {
		if errors.Is(err, errOutdated) {
			return f.Goto(stepAdvance), nil
		}
		return flow.Next{}, err
	}
	if r.op == nil || r.op.Spec.TTLAfterFinished == nil || !r.op.Terminal() || r.op.Status.FinishedAt == nil {
		return f.End(), nil
	}
	expiry := r.op.Status.FinishedAt.Add(r.op.Spec.TTLAfterFinished.Duration)
	if now.Before(expiry) {
		r.op = nil
		return f.Await(&r.live.news, flow.Until(expiry)).Then(stepAdvance), nil
	}
	return f.End(), e.remove(ctx, r)
}

// expired returns the change that ends a webhook whose own timeout has passed, nil if it has not.
func (e *Executor) expired(op *v1alpha1.Operation, t target, hook *webhook.Compiled, now time.Time) change {
	en := entry(&op.Status, t)
	timeout := hook.Definition().Timeout
	if en == nil || en.StartedAt == nil || now.Before(en.StartedAt.Add(timeout)) {
		return nil
	}
	return judged(op, t, verdict{
		state: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonTimedOut,
		message: "webhook " + t.id + " was not finished within " + timeout.String(),
	}, now)
}

func micro(t time.Time) *metav1.MicroTime { m := metav1.NewMicroTime(t); return &m }
