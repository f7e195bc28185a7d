package course

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Act is the next action.
type Act uint8

// The actions.
const (
	// ActNothing: the operation has ended, or no executor is responsible for it.
	ActNothing Act = iota
	// ActBegin: the spec requests an operation that the status does not describe yet.
	ActBegin
	// ActCall: start the calls in Decision.Due now.
	ActCall
	// ActWait: no step is due before Decision.Until.
	ActWait
	// ActFail: the outcome is failure with Decision.Reason, not recorded yet.
	ActFail
	// ActFinish: all calls have ended; the end with Decision.Phase is not recorded yet.
	ActFinish
)

// Decision is the result of Plan.
type Decision struct {
	Act     Act
	Due     []record.Target
	Until   time.Time
	Phase   v1alpha1.Phase
	Reason  string
	Message string
	// Missing lists Webhooks that do not exist. The operation waits for them.
	Missing []string
	// Withheld describes credentials that are not released. The operation waits for them.
	Withheld []string
	// Turn says why the first call is not made yet.
	Turn Turn
}

// Lookup returns the facts about a Webhook. ok is false if it does not exist.
type Lookup func(name string) (w WebhookFacts, ok bool)

// WebhookFacts are the properties of a Webhook that Plan needs.
type WebhookFacts struct {
	Timeout     time.Duration
	Retry       backoff.Policy
	Poll        time.Duration
	Withheld    bool   // its credentials are not released: no call is made
	Why         string // a description; empty while the release is unknown
	Quarantined bool   // it exists, but is not used
}

// absence says why a Webhook cannot be called.
func absence(find Lookup, name string) string {
	if facts, _ := find(name); facts.Quarantined {
		return "quarantined"
	}
	return "missing"
}

// Surroundings is the input of Plan besides the Operation.
type Surroundings struct {
	Find Lookup
	// Turn reports whether the operation may make its first call. Nil: it may.
	Turn func(*v1alpha1.Operation) Turn
	// Flying reports whether a call is in progress.
	Flying func(record.Target) bool
	// NotBefore returns a lower bound for a call that its status does not contain: its turn, or the next poll if the
	// last one was not written. Zero means no bound.
	NotBefore func(record.Target) time.Time
}

// Plan decides the next step of an operation. The result depends only on the arguments.
func Plan(op *v1alpha1.Operation, s Surroundings, now time.Time) Decision {
	stage := record.StageOf(op)
	switch stage {
	case record.Requested:
		if op.DeletionTimestamp != nil && len(op.Finalizers) == 0 {
			return Decision{Act: ActNothing}
		}
		return Decision{Act: ActBegin}
	case record.Ended:
		return Decision{Act: ActNothing}
	case record.Failed:
		return conclude(op, v1alpha1.PhaseFailed, s, now)
	}
	if problem := invalid(op); problem != "" {
		return Decision{Act: ActFail, Reason: v1alpha1.ReasonInvalid, Message: problem}
	}
	if e := firstFailed(op); e != nil { // another client removed the condition
		return Decision{Act: ActFail, Reason: v1alpha1.ReasonWebhookFailed, Message: e.Message}
	}
	switch {
	case stage == record.Succeeded:
		return conclude(op, v1alpha1.PhaseSuccess, s, now)
	case stage == record.Stopping && op.Spec.CancelRequested:
		return Decision{Act: ActFail, Reason: v1alpha1.ReasonCanceled, Message: "cancellation was requested"}
	case stage == record.Stopping:
		return Decision{Act: ActFail, Reason: v1alpha1.ReasonCanceled, Message: "the operation was deleted"}
	}
	d := attend(op, s, now)
	if deadline := op.Deadline(); !now.Before(deadline) {
		if len(d.Missing) > 0 {
			return Decision{
				Act: ActFail, Reason: v1alpha1.ReasonWebhookNotFound,
				Message: "webhook " + d.Missing[0] + " was still " + absence(s.Find, d.Missing[0]) + " at the deadline",
			}
		}
		return Decision{
			Act: ActFail, Reason: v1alpha1.ReasonTimedOut,
			Message: "not finished within " + op.Timeout().String() + excuse(op),
		}
	} else if d.Act == ActWait && deadline.Before(d.Until) {
		d.Until = deadline
	}
	return d
}

const (
	// lookAgain bounds a wait for missing information in the store. The event with the information ends the wait
	// earlier.
	lookAgain = time.Second
	// lookBehind bounds a wait behind an operation that is gone without an event, because it was created and deleted
	// too quickly.
	lookBehind = time.Minute
)

// attend pursues the webhooks if it is the turn of the operation.
func attend(op *v1alpha1.Operation, s Surroundings, now time.Time) Decision {
	if s.Turn == nil {
		return pursue(op, record.Due(op, s.Flying), s, now)
	}
	switch t := s.Turn(op); {
	case t.Unknown, t.Doubt != nil:
		return Decision{Act: ActWait, Until: now.Add(lookAgain), Turn: t}
	case t.Still, t.Behind != nil:
		return Decision{Act: ActWait, Until: now.Add(lookBehind), Turn: t}
	}
	return pursue(op, record.Due(op, s.Flying), s, now)
}

// excuse says what a timed out operation was waiting for, if that was another operation or the release of credentials.
func excuse(op *v1alpha1.Operation) string {
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != v1alpha1.ReasonWaitingForLock && c.Reason != v1alpha1.ReasonNotReleased {
		return ""
	}
	return ": it was " + c.Message
}

// invalid returns the problem of a request that cannot run. The Scheduler and the API server refuse such requests, so
// another client wrote it. invalid checks only before the first call.
func invalid(op *v1alpha1.Operation) string {
	if len(op.Status.Webhooks) > 0 {
		return ""
	}
	if want := v1alpha1.OperationName(op.Spec.ResourceType, op.Spec.ResourceID); op.Name != want {
		return "metadata.name must be " + want + " for this resource, so that it has one operation at a time"
	}
	if err := operations.Validate(op.Spec); err != nil {
		return err.Error()
	}
	return ""
}

// conclude decides the step after a decided outcome: compensation, notification, or the end. It first waits for the
// running calls, so that their effects are compensated too, and no call runs after the end.
func conclude(op *v1alpha1.Operation, phase v1alpha1.Phase, s Surroundings, now time.Time) Decision {
	due := record.Due(op, s.Flying)
	switch {
	case len(due) == 0:
		return Decision{Act: ActFinish, Phase: phase}
	case due[0].Purpose == record.Main:
		return Decision{Act: ActWait, Until: FarFuture, Phase: phase}
	}
	return afterwards(op, due[0], phase, s, now)
}

// afterwards pursues a call that cannot change the outcome. It waits for a missing Webhook or unreleased credentials
// until the deadline of the operation. Then the call is due, and it fails when it is made.
func afterwards(op *v1alpha1.Operation, t record.Target, phase v1alpha1.Phase, s Surroundings, now time.Time) Decision {
	d := pursue(op, []record.Target{t}, s, now)
	d.Phase = phase
	if len(d.Missing)+len(d.Withheld) > 0 {
		if deadline := op.Deadline(); !now.Before(deadline) {
			d.Act, d.Due, d.Missing, d.Withheld = ActCall, []record.Target{t}, nil, nil
		} else if deadline.Before(d.Until) {
			d.Until = deadline
		}
	}
	return d
}

// FarFuture means that only an event ends the wait.
var FarFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// pursue returns the due targets, or else the time until the first is due.
func pursue(op *v1alpha1.Operation, targets []record.Target, s Surroundings, now time.Time) Decision {
	d := Decision{Act: ActWait, Until: FarFuture}
	for _, t := range targets {
		if s.Flying(t) {
			continue // its return is an event
		}
		facts, ok := s.Find(t.ID)
		if !ok {
			d.Missing = append(d.Missing, t.ID)
			facts.Timeout = v1alpha1.DefaultWebhookTimeout
		}
		e := record.Entry(&op.Status, t)
		due := dueAt(e, facts, now)
		if at := s.NotBefore(t); at.After(due) {
			due = at
			if e != nil && e.StartedAt != nil && e.StartedAt.Add(facts.Timeout).Before(due) {
				due = e.StartedAt.Add(facts.Timeout)
			}
		}
		if facts.Withheld && !due.After(now) { // its own timeout continues
			if due = FarFuture; e != nil && e.StartedAt != nil {
				due = e.StartedAt.Add(facts.Timeout)
			}
			if facts.Why != "" && due.After(now) {
				d.Withheld = append(d.Withheld, facts.Why)
			}
		}
		switch {
		case !due.After(now) && ok:
			d.Due = append(d.Due, t)
		case due.After(now) && due.Before(d.Until):
			d.Until = due
		}
	}
	if len(d.Due) > 0 {
		d.Act = ActCall
	}
	return d
}

// dueAt returns when a call is due: for its next try or poll, or for its timeout.
func dueAt(e *v1alpha1.WebhookCallStatus, facts WebhookFacts, now time.Time) time.Time {
	if e == nil || e.StartedAt == nil {
		return time.Time{}
	}
	expiry := e.StartedAt.Add(facts.Timeout)
	switch {
	case e.NextAttemptAt != nil && tooFar(e, facts, now):
		return time.Time{}
	case e.NextAttemptAt != nil && e.NextAttemptAt.Time.Before(expiry):
		return e.NextAttemptAt.Time
	case e.NextAttemptAt == nil && !e.AwaitsCallback():
		return time.Time{} // recorded without an answer: called now, or again after a crash
	default:
		return expiry
	}
}

// tooFar reports whether the next try or poll is further away than a wait of the Webhook can be. Such a time was
// recorded by a process with another clock, or before the Webhook's intervals were shortened. A receiver may ask for
// longer waits, up to backoff.MaxRetryAfter.
func tooFar(e *v1alpha1.WebhookCallStatus, facts WebhookFacts, now time.Time) bool {
	longest := facts.Retry.Ceiling(int(e.RetriesCount))
	switch {
	case e.RetryAfter:
		longest = backoff.MaxRetryAfter
	case e.WebhookPollURL != "":
		longest = facts.Poll
	}
	return e.NextAttemptAt.Sub(now) > max(longest, webhook.MinInterval)+clocksAlike
}

// clocksAlike is the usual difference between the clocks of two machines. A wait that was just recorded may seem that
// much too long.
const clocksAlike = time.Second

// firstFailed returns the record of a failed webhook, or nil.
func firstFailed(op *v1alpha1.Operation) *v1alpha1.WebhookCallStatus {
	for i := range op.Status.Webhooks {
		if op.Status.Webhooks[i].State == v1alpha1.PhaseFailed {
			return &op.Status.Webhooks[i]
		}
	}
	return nil
}
