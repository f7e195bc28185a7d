package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// starter starts the calls of operations and applies their results. It has no state: that of a call is its flight, in
// the run.
type starter struct {
	fence   func(namespace string) error // whether requests may be sent
	writes  draftWriter
	hooks   hookFacts
	calls   caller
	reports reports
	paces   *paces
	// trusted reports whether calls of a namespace can be recorded after they are made.
	trusted     func(namespace string) bool
	callbackURL callbackURL
	traces      traces
}

// caller makes calls of Webhooks; see calls.
type caller interface {
	admit(
		operation store.Key, p fair.Party, q queued, call string, hook *webhook.Compiled, now time.Time,
	) (*flight, refusal)
	release(operation store.Key, p fair.Party, f *flight)
	withdraw(p fair.Party, q queued, call string)
	start(ctx context.Context, r *run, f *flight, of webhook.Call, pollURL string, deadline time.Time)
}

// callbackURL returns the URL at which the receiver of a call reports its outcome; empty: none.
type callbackURL func(op *v1alpha1.Operation, webhookID string, purpose webhook.Purpose) string

// start prepares the calls that are due and starts them. Before that, it records their attempts, unless the object is
// record enough (O2).
func (s *starter) start(ctx context.Context, r *run, d course.Decision, now time.Time) (err error) {
	if err := s.fence(r.key.Namespace); err != nil {
		return fmt.Errorf("cannot make a call: %w", err)
	}
	if len(r.op.Spec.CompensateWebhookIDs) > 0 {
		if err := s.writes.hold(ctx, r.draft()); err != nil {
			return err
		}
	}
	isBegun := func(t record.Target) bool { return begun(record.Entry(&r.op.Status, t)) }
	if !r.confirmed && slices.ContainsFunc(d.Due, isBegun) {
		return s.writes.reload(ctx, r.draft()) // a predecessor may have recorded the outcome
	}
	if d.Due[0].Purpose == record.Main && !r.entered && r.op.Status.AcceptedVersion != r.place {
		return nil // its place has changed: check its turn again
	}
	defer func(unsaved int) {
		// The next step may find that another operation goes first, or may come late. No attempt may be recorded that was
		// not made.
		if err != nil {
			r.dropSince(unsaved)
		}
	}(len(r.unsaved))
	hooks := s.ready(r, d.Due, now)
	if len(hooks) == 0 {
		return nil // the due calls wait for compilation, or were judged without a call
	}
	unrecorded := r.needsNoRecord(d.Due, hooks, s.trusted)
	repeatsNow := sync.OnceValue(func() bool { return s.paces.repeatsNow(r.draft(), now) })
	repeats := func(t record.Target) bool { return r.mayRepeat(record.Entry(&r.op.Status, t)) && repeatsNow() }
	records := func(t record.Target) bool { return !isBegun(t) && !repeats(t) }
	if (!r.onlyRepeats() || slices.ContainsFunc(d.Due, records)) && !s.writes.pay(r.draft()) {
		s.withdraw(r, allOf) // other runs can use the slots that are kept for it
		return errShort
	}
	var ready []*flight
	defer func() {
		if err != nil {
			for _, f := range ready {
				f.permit.Release()
				s.calls.release(r.key, r.party(), f)
			}
		}
	}()
	for _, t := range d.Due {
		hook := hooks[t]
		if hook == nil {
			continue
		}
		if withheld := withheld(s.hooks, r.op, t, now); withheld != nil {
			r.apply(withheld)
			continue
		}
		f, refused := s.calls.admit(r.key, r.party(), queued{&r.news, t}, course.CallID(r.op, t), hook, now)
		if f == nil {
			r.refuse(t, refused)
			continue
		}
		delete(r.refused, t)
		switch en := record.Entry(&r.op.Status, t); {
		case begun(en):
			f.attempt = en.AttemptID
			if course.Unkeyed(en) {
				r.apply(course.Key(r.op, t))
			}
		case repeats(t):
			f.attempt = en.AttemptID
			r.change(unsavedChange{course.Again(r.op, t, compiled.Generation(hook)), now, t})
		default:
			f.attempt = course.NewAttempt(r.op, t)
			r.apply(course.Attempt(r.op, t, f.attempt, compiled.Generation(hook), now))
		}
		ready = append(ready, f)
	}
	if len(ready) == 0 {
		return nil // the due calls wait for their turn
	}
	if !r.outdated {
		s.reports.showWait(ctx, r.draft(), r.share(), nil, d, now)
	}
	if unrecorded {
		r.entered, r.unrecorded = true, now
		s.launch(ctx, r, ready[0])
		return nil
	}
	if !r.onlyRepeats() {
		if err := s.writes.save(ctx, r.draft()); err != nil {
			return err
		}
		if r.replaced { // the answer was lost, and the object names another request since
			return errOutdated
		}
	}
	for _, f := range ready {
		if course.Unkeyed(record.Entry(&r.op.Status, f.target)) {
			return s.outdated(ctx, r, now)
		}
	}
	r.outdated = false
	for _, f := range ready {
		s.launch(ctx, r, f)
	}
	return nil
}

// ready returns the Webhooks of the due calls that can be made. It records a verdict for calls that cannot be made.
// Calls whose Webhook is not compiled yet wait.
func (s *starter) ready(r *run, due []record.Target, now time.Time) map[record.Target]*webhook.Compiled {
	hooks := make(map[record.Target]*webhook.Compiled, len(due))
	for _, t := range due {
		key := store.Key{Namespace: r.key.Namespace, Name: t.ID}
		if times, ok := s.hooks.times(key); ok {
			if expired := expired(r.op, t, times.Timeout, now); expired != nil {
				r.apply(expired)
				continue
			}
		}
		hook, err := s.hooks.usable(key, &r.news)
		if errors.Is(err, compiled.ErrCompiling) {
			r.refuse(t, refusal{until: course.FarFuture, share: shareCompile, since: now})
			continue
		}
		if err != nil {
			r.apply(course.Judged(r.op, t, webhookInvalid(err), now))
			continue
		}
		hooks[t] = hook
	}
	return hooks
}

// begun reports whether a due call was started before. Such a call is polled, or the recorded attempt is repeated.
func begun(en *v1alpha1.WebhookCallStatus) bool {
	return en != nil && en.AttemptID != "" && en.StartedAt != nil && (en.NextAttemptAt == nil || en.WebhookPollURL != "")
}

// expired returns the change that ends a webhook whose own timeout has passed; nil otherwise.
func expired(op *v1alpha1.Operation, t record.Target, timeout time.Duration, now time.Time) course.Change {
	en := record.Entry(&op.Status, t)
	if en == nil || en.StartedAt == nil || now.Before(en.StartedAt.Add(timeout)) {
		return nil
	}
	return course.Judged(op, t, course.Verdict{
		State: v1alpha1.PhaseFailed, Code: int(en.LastStatusCode), Reason: v1alpha1.ReasonTimedOut,
		Message: "webhook " + t.ID + " was not finished within " + timeout.String(),
	}, now)
}

// withheld returns the change that gives up a compensation or notification whose credentials are not released by the
// deadline of the operation; nil otherwise.
func withheld(hooks hookFacts, op *v1alpha1.Operation, t record.Target, now time.Time) course.Change {
	why := hooks.withheld(store.Key{Namespace: op.Namespace, Name: t.ID})
	if why == nil || t.Purpose == record.Main || now.Before(op.Deadline()) {
		return nil
	}
	return course.Judged(op, t, course.Verdict{
		State: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNotReleased, Message: "webhook " + t.ID + ": " + why.Error(),
	}, now)
}

// webhookInvalid is the verdict on a call that cannot be made.
func webhookInvalid(err error) course.Verdict {
	reason := v1alpha1.ReasonInvalid
	if errors.Is(err, compiled.ErrNoWebhook) {
		reason = v1alpha1.ReasonWebhookNotFound
	}
	return course.Verdict{State: v1alpha1.PhaseFailed, Reason: reason, Message: err.Error()}
}

// outdated reports that no call can be made, since the API server drops its key. It returns errOutdatedCRD.
func (s *starter) outdated(ctx context.Context, r *run, now time.Time) error {
	if !r.outdated {
		r.outdated = true
		s.reports.outdatedCRD(ctx, r.op)
		r.apply(course.Await(r.op.EffectiveID(), v1alpha1.ReasonOutdatedCRD, course.Tidy(errOutdatedCRD.Error()), now))
		if err := s.writes.save(ctx, r.draft()); err != nil {
			return err
		}
	}
	return errOutdatedCRD
}

// withdraw removes the calls that unwanted selects from the queues in which the run waits.
func (s *starter) withdraw(r *run, unwanted func(record.Target) bool) {
	for t, refusal := range r.refused {
		if !unwanted(t) {
			continue
		}
		s.calls.withdraw(r.party(), queued{&r.news, t}, refusal.call)
		delete(r.refused, t)
	}
}

// unwanted returns a function that selects the calls of an operation that are not made, or not made now. A slot that
// is kept for such a call would be lost to all others.
func unwanted(op *v1alpha1.Operation, find course.Lookup) func(record.Target) bool {
	decided := meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError)
	return func(t record.Target) bool {
		facts, exists := find(t.ID)
		en := record.Entry(&op.Status, t)
		return !exists || facts.Withheld || decided && t.Purpose == record.Main || en != nil && en.State.Terminal()
	}
}

func allOf(record.Target) bool { return true }
