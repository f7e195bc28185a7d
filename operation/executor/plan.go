package executor

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/webhook"
)

// act is what to do next.
type act uint8

const (
	// actNothing: the operation has ended, or belongs to nobody any more.
	actNothing act = iota
	// actBegin: the spec asks for an operation that the status does not speak of yet.
	actBegin
	// actCall: start the calls in decision.due, now.
	actCall
	// actWait: nothing is due before decision.until.
	actWait
	// actFail: the outcome is failure, for decision.reason; it is not recorded yet.
	actFail
	// actFinish: everything has been done; the end, with decision.phase, is not decided yet.
	actFinish
)

// decision is the answer of plan.
type decision struct {
	act     act
	due     []target
	until   time.Time
	phase   v1alpha1.Phase
	reason  string
	message string
	// missing are Webhooks that do not exist; the operation waits for them.
	missing []string
	// withheld say which credentials are not released; the operation waits for that.
	withheld []string
	// turn is why the first call is not made yet.
	turn turn
}

// lookup tells what plan needs to know of a Webhook; ok is false if it does not exist.
type lookup func(name string) (w webhookFacts, ok bool)

type webhookFacts struct {
	timeout     time.Duration
	withheld    bool   // what it needs is not released: it is not to be called
	why         string // in words; empty while it is not known whether it is released
	quarantined bool   // it exists, and is not used
}

// absence says why a Webhook cannot be called.
func absence(find lookup, name string) string {
	if facts, _ := find(name); facts.quarantined {
		return "quarantined"
	}
	return "missing"
}

// surroundings is what plan needs to know besides the Operation.
type surroundings struct {
	find lookup
	// turn tells whether the operation may make its first call. Nil: it may.
	turn func(*v1alpha1.Operation) turn
	// flying are the calls under way.
	flying map[target]*flight
	// refused are the calls that wait for their turn.
	refused map[target]refusal
	// later is when polls are due whose status was not written since the last one.
	later map[target]time.Time
}

// plan decides what is due for an operation. It depends on its arguments only.
func plan(op *v1alpha1.Operation, s surroundings, now time.Time) decision {
	switch {
	case !op.PickedUp():
		if op.DeletionTimestamp != nil && len(op.Finalizers) == 0 {
			return decision{act: actNothing}
		}
		return decision{act: actBegin}
	case op.Status.Phase.Terminal():
		return decision{act: actNothing}
	}
	failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
	switch {
	case failed != nil && failed.Status == metav1.ConditionTrue:
		return conclude(op, v1alpha1.PhaseFailed, s, now)
	}
	if problem := invalid(op); problem != "" {
		return decision{act: actFail, reason: v1alpha1.ReasonInvalid, message: problem}
	}
	if e := firstFailed(op); e != nil { // the condition was taken away by somebody else
		return decision{act: actFail, reason: v1alpha1.ReasonWebhookFailed, message: e.Message}
	}
	switch {
	case succeeded(op) == len(op.Spec.WebhookIDs):
		return conclude(op, v1alpha1.PhaseSuccess, s, now)
	case op.Spec.CancelRequested:
		return decision{act: actFail, reason: v1alpha1.ReasonCanceled, message: "cancellation was requested"}
	case op.DeletionTimestamp != nil:
		return decision{act: actFail, reason: v1alpha1.ReasonCanceled, message: "the operation was deleted"}
	}
	d := attend(op, s, now)
	if deadline := op.Deadline(); !now.Before(deadline) {
		if len(d.missing) > 0 {
			return decision{
				act: actFail, reason: v1alpha1.ReasonWebhookNotFound,
				message: "webhook " + d.missing[0] + " was still " + absence(s.find, d.missing[0]) + " at the deadline",
			}
		}
		return decision{
			act: actFail, reason: v1alpha1.ReasonTimedOut,
			message: "not finished within " + op.Timeout().String() + excuse(op),
		}
	} else if d.act == actWait && deadline.Before(d.until) {
		d.until = deadline
	}
	return d
}

// attend pursues the webhooks once it is the turn of the operation.
func attend(op *v1alpha1.Operation, s surroundings, now time.Time) decision {
	if s.turn == nil {
		return pursue(op, webhooksDue(op), s, now)
	}
	switch t := s.turn(op); {
	case t.unknown, t.doubt != nil:
		return decision{act: actWait, until: now.Add(lookAgain), turn: t}
	case t.still, t.behind != nil:
		return decision{act: actWait, until: now.Add(lookBehind), turn: t}
	}
	return pursue(op, webhooksDue(op), s, now)
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
	if err := operation.Validate(op.Spec); err != nil {
		return err.Error()
	}
	return ""
}

// conclude runs what follows the decision on the outcome: compensation, notification, the end. The calls under way come
// home first, so that what they did is compensated too, and nothing happens after the end.
func conclude(op *v1alpha1.Operation, phase v1alpha1.Phase, s surroundings, now time.Time) decision {
	for t := range s.flying {
		if t.purpose == webhook.Main {
			return decision{act: actWait, until: farFuture, phase: phase}
		}
	}
	if phase == v1alpha1.PhaseFailed && succeeded(op) > 0 {
		for _, id := range op.Spec.CompensateWebhookIDs {
			if e := entry(&op.Status, target{webhook.Compensate, id}); e == nil || !e.State.Terminal() {
				return afterwards(op, target{webhook.Compensate, id}, phase, s, now)
			}
		}
	}
	if id := op.Spec.NotifyWebhookID; id != "" &&
		(op.Status.Notification == nil || !op.Status.Notification.State.Terminal()) {
		return afterwards(op, target{webhook.Notify, id}, phase, s, now)
	}
	return decision{act: actFinish, phase: phase}
}

// afterwards pursues a call that cannot change the outcome. A Webhook that is missing, or whose credentials are not
// released, is waited for as long as the operation itself might have taken; then the call is due, and its maker finds
// that it cannot be made.
func afterwards(op *v1alpha1.Operation, t target, phase v1alpha1.Phase, s surroundings, now time.Time) decision {
	d := pursue(op, []target{t}, s, now)
	d.phase = phase
	if len(d.missing)+len(d.withheld) > 0 {
		if deadline := op.Deadline(); !now.Before(deadline) {
			d.act, d.due, d.missing, d.withheld = actCall, []target{t}, nil, nil
		} else if deadline.Before(d.until) {
			d.until = deadline
		}
	}
	return d
}

// webhooksDue returns the webhooks that may be worked on now: the first that has not succeeded, or all of them.
func webhooksDue(op *v1alpha1.Operation) []target {
	var open []target
	for _, id := range op.Spec.WebhookIDs {
		t := target{webhook.Main, id}
		if e := entry(&op.Status, t); e != nil && e.State.Terminal() {
			continue
		}
		open = append(open, t)
		if op.Spec.Execution != v1alpha1.ExecutionParallel {
			break
		}
	}
	return open
}

// farFuture stands for "not before something happens".
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// pursue returns which of the targets are due, or else until when none is.
func pursue(op *v1alpha1.Operation, targets []target, s surroundings, now time.Time) decision {
	d := decision{act: actWait, until: farFuture}
	for _, t := range targets {
		if s.flying[t] != nil {
			continue // it comes back by itself
		}
		facts, ok := s.find(t.id)
		if !ok {
			d.missing = append(d.missing, t.id)
			facts.timeout = v1alpha1.DefaultWebhookTimeout
		}
		e := entry(&op.Status, t)
		due := dueAt(e, facts.timeout)
		if at := latest(s.refused[t].until, s.later[t]); at.After(due) {
			due = at
			if e != nil && e.StartedAt != nil && e.StartedAt.Add(facts.timeout).Before(due) {
				due = e.StartedAt.Add(facts.timeout)
			}
		}
		if facts.withheld && !due.After(now) { // its own timeout goes on
			if due = farFuture; e != nil && e.StartedAt != nil {
				due = e.StartedAt.Add(facts.timeout)
			}
			if facts.why != "" && due.After(now) {
				d.withheld = append(d.withheld, facts.why)
			}
		}
		switch {
		case !due.After(now) && ok:
			d.due = append(d.due, t)
		case due.After(now) && due.Before(d.until):
			d.until = due
		}
	}
	if len(d.due) > 0 {
		d.act = actCall
	}
	return d
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dueAt returns when a call wants attention: its next try or poll, or its own timeout.
func dueAt(e *v1alpha1.WebhookCallStatus, timeout time.Duration) time.Time {
	if e == nil || e.StartedAt == nil {
		return time.Time{}
	}
	expiry := e.StartedAt.Add(timeout)
	switch {
	case e.NextAttemptAt != nil && e.NextAttemptAt.Time.Before(expiry):
		return e.NextAttemptAt.Time
	case e.NextAttemptAt == nil && !awaitsCallback(e):
		return time.Time{} // recorded but without an answer: made now, or again after a crash
	default:
		return expiry
	}
}

// awaitsCallback tells whether the receiver has taken the call and is expected to call back.
func awaitsCallback(e *v1alpha1.WebhookCallStatus) bool {
	return e.LastStatusCode != 0 && e.NextAttemptAt == nil && e.WebhookPollURL == "" && e.AttemptID != ""
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

func succeeded(op *v1alpha1.Operation) int {
	n := 0
	for i := range op.Status.Webhooks {
		if op.Status.Webhooks[i].State == v1alpha1.PhaseSuccess {
			n++
		}
	}
	return n
}

// entry returns the record of a call, nil if it has not been started. It points into the status.
func entry(s *v1alpha1.OperationStatus, t target) *v1alpha1.WebhookCallStatus {
	list := s.Webhooks
	switch t.purpose {
	case webhook.Notify:
		return s.Notification
	case webhook.Compensate:
		list = s.Compensations
	}
	for i := range list {
		if list[i].WebhookID == t.id {
			return &list[i]
		}
	}
	return nil
}
