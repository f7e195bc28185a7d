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

// Act is what to do next.
type Act uint8

// What there is to do.
const (
	// ActNothing says: the operation has ended, or belongs to nobody any more.
	ActNothing Act = iota
	// ActBegin says: the spec asks for an operation that the status does not speak of yet.
	ActBegin
	// ActCall says: start the calls in Decision.Due, now.
	ActCall
	// ActWait says: nothing is due before Decision.Until.
	ActWait
	// ActFail says: the outcome is failure, for Decision.Reason; it is not recorded yet.
	ActFail
	// ActFinish says: everything has been done; the end, with Decision.Phase, is not decided yet.
	ActFinish
)

// Decision is the answer of Plan.
type Decision struct {
	Act     Act
	Due     []record.Target
	Until   time.Time
	Phase   v1alpha1.Phase
	Reason  string
	Message string
	// Missing are Webhooks that do not exist; the operation waits for them.
	Missing []string
	// Withheld say which credentials are not released; the operation waits for that.
	Withheld []string
	// Turn is why the first call is not made yet.
	Turn Turn
}

// Lookup tells what Plan needs to know of a Webhook; ok is false if it does not exist.
type Lookup func(name string) (w WebhookFacts, ok bool)

// WebhookFacts are what Plan needs to know of a Webhook that exists.
type WebhookFacts struct {
	Timeout     time.Duration
	Retry       backoff.Policy
	Poll        time.Duration
	Withheld    bool   // what it needs is not released: it is not to be called
	Why         string // in words; empty while it is not known whether it is released
	Quarantined bool   // it exists, and is not used
}

// absence says why a Webhook cannot be called.
func absence(find Lookup, name string) string {
	if facts, _ := find(name); facts.Quarantined {
		return "quarantined"
	}
	return "missing"
}

// Surroundings is what Plan needs to know besides the Operation.
type Surroundings struct {
	Find Lookup
	// Turn tells whether the operation may make its first call. Nil: it may.
	Turn func(*v1alpha1.Operation) Turn
	// Flying tells whether a call is under way.
	Flying func(record.Target) bool
	// NotBefore is until when a call has to wait for something that its status does not tell: for its turn, or for a poll
	// whose status was not written since the last one. The zero time: for nothing.
	NotBefore func(record.Target) time.Time
}

// Plan decides what is due for an operation. It depends on its arguments only.
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
	// lookAgain bounds how long an operation waits that the store does not know enough for. What it lacks is an event,
	// which wakes it.
	lookAgain = time.Second
	// lookBehind bounds how long an operation stays behind one that is gone without an event, since it came and went too
	// fast for one.
	lookBehind = time.Minute
)

// attend pursues the webhooks once it is the turn of the operation.
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

// excuse says what an operation that was not finished in time was waiting for, if that is another operation or the
// release of credentials.
func excuse(op *v1alpha1.Operation) string {
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != v1alpha1.ReasonWaitingForLock && c.Reason != v1alpha1.ReasonNotReleased {
		return ""
	}
	return ": it was " + c.Message
}

// invalid says what is wrong with a request that cannot be run: one that no Scheduler has made, since the API server
// and the Scheduler refuse such. It looks only before the first call.
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

// conclude decides what follows a decided outcome: compensation, notification, the end. The calls under way return first,
// so that their effects are compensated too, and nothing happens after the end.
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

// afterwards pursues a call that cannot change the outcome. A Webhook that is missing, or whose credentials are not
// released, is waited for as long as the operation itself might have taken; then the call is due, and its maker finds
// that it cannot be made.
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

// FarFuture stands for "not before something happens".
var FarFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// pursue returns which of the targets are due, or else until when none is.
func pursue(op *v1alpha1.Operation, targets []record.Target, s Surroundings, now time.Time) Decision {
	d := Decision{Act: ActWait, Until: FarFuture}
	for _, t := range targets {
		if s.Flying(t) {
			continue // it comes back by itself
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
		if facts.Withheld && !due.After(now) { // its own timeout goes on
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

// dueAt returns when a call wants attention: its next try or poll, or its own timeout.
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
		return time.Time{} // recorded but without an answer: made now, or again after a crash
	default:
		return expiry
	}
}

// tooFar tells whether the next try or poll is much further away than the Webhook has it wait: twice, since clocks may
// differ a little. It was noted by a process whose clock is ahead of ours, or before the Webhook was told to wait less.
// What the receiver has asked for counts.
func tooFar(e *v1alpha1.WebhookCallStatus, facts WebhookFacts, now time.Time) bool {
	longest := facts.Retry.Ceiling(int(e.RetriesCount))
	if e.WebhookPollURL != "" {
		longest = facts.Poll
	}
	return !e.RetryAfter && e.NextAttemptAt.Sub(now) > 2*max(longest, webhook.MinInterval)
}

// firstFailed returns the record of a webhook that has failed, nil if there is none.
func firstFailed(op *v1alpha1.Operation) *v1alpha1.WebhookCallStatus {
	for i := range op.Status.Webhooks {
		if op.Status.Webhooks[i].State == v1alpha1.PhaseFailed {
			return &op.Status.Webhooks[i]
		}
	}
	return nil
}
