package causes

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// Target names one call of an operation.
type Target struct {
	Purpose string // as in idempotency keys: empty, compensate or notify
	Webhook string
}

// The purposes.
const (
	Main       = ""
	Compensate = "compensate"
	Notify     = "notify"
)

// Due returns the calls that an operation is at: those that have not ended and wait for no other call.
func Due(op *v1alpha1.Operation) (due []Target) {
	if op.Terminal() || !op.PickedUp() {
		return nil
	}
	failed, decided := failure(op)
	if !decided && !succeeded(op) {
		for _, id := range op.Spec.WebhookIDs {
			if e := Entry(op, Target{Main, id}); e != nil && e.State.Terminal() {
				continue
			}
			due = append(due, Target{Main, id})
			if op.Spec.Execution != v1alpha1.ExecutionParallel {
				break
			}
		}
		return due
	}
	for i := range op.Status.Webhooks { // what is under way comes home first
		if e := &op.Status.Webhooks[i]; inFlight(e) {
			due = append(due, Target{Main, e.WebhookID})
		}
	}
	if len(due) > 0 {
		return due
	}
	if failed != "" && anySucceeded(op) {
		for _, id := range op.Spec.CompensateWebhookIDs {
			if t := (Target{Compensate, id}); open(op, t) {
				return []Target{t}
			}
		}
	}
	if t := (Target{Notify, op.Spec.NotifyWebhookID}); t.Webhook != "" && open(op, t) {
		return []Target{t}
	}
	return nil
}

// Entry returns the record of a call, nil if it has not been started. It points into the status.
func Entry(op *v1alpha1.Operation, t Target) *v1alpha1.WebhookCallStatus {
	list := op.Status.Webhooks
	switch t.Purpose {
	case Notify:
		return op.Status.Notification
	case Compensate:
		list = op.Status.Compensations
	}
	for i := range list {
		if list[i].WebhookID == t.Webhook {
			return &list[i]
		}
	}
	return nil
}

func open(op *v1alpha1.Operation, t Target) bool {
	e := Entry(op, t)
	return e == nil || !e.State.Terminal()
}

func succeeded(op *v1alpha1.Operation) bool {
	for _, id := range op.Spec.WebhookIDs {
		if e := Entry(op, Target{Main, id}); e == nil || e.State != v1alpha1.PhaseSuccess {
			return false
		}
	}
	return true
}

func anySucceeded(op *v1alpha1.Operation) bool {
	for i := range op.Status.Webhooks {
		if op.Status.Webhooks[i].State == v1alpha1.PhaseSuccess {
			return true
		}
	}
	return false
}

// inFlight tells whether a call was begun and nothing has come back.
func inFlight(e *v1alpha1.WebhookCallStatus) bool {
	return !e.State.Terminal() && e.AttemptID != "" && e.NextAttemptAt == nil && !e.AwaitsCallback()
}

// DueSince is since when a call waits to be made, or made again: that is not later than now.
func DueSince(op *v1alpha1.Operation, t Target, now time.Time) time.Time {
	e := Entry(op, t)
	switch {
	case e == nil || e.StartedAt == nil:
		return LastStep(op)
	case e.NextAttemptAt != nil && !e.NextAttemptAt.After(now):
		return e.NextAttemptAt.Time
	}
	return e.StartedAt.Time
}

// Call says what one call of an operation waits for, as far as its record tells. It is false for one that has not begun,
// or has ended.
func Call(op *v1alpha1.Operation, t Target, known Known, now time.Time) (why.Cause, bool) {
	e := Entry(op, t)
	if e == nil || e.State.Terminal() || e.AttemptID == "" {
		return why.Cause{}, false
	}
	c := why.Cause{Type: why.Parked, Evidence: evidence(e, t)}
	if e.StartedAt != nil {
		c.Since = e.StartedAt.Time
	}
	name := title(t)
	var next time.Time
	if e.NextAttemptAt != nil {
		next = e.NextAttemptAt.Time
	}
	began := time.Time{}
	if known.Began != nil {
		began = known.Began(t)
	}
	switch {
	case !began.IsZero():
		c.Message, c.Since, c.Progress = "it calls "+name, began, now.Sub(began) < longest
		if e.WebhookPollURL != "" {
			c.Message = "it polls " + name
		}
	case e.AwaitsCallback():
		c.Message, c.Until = "it waits for the callback of "+name, expiry(op, t, e, known)
		c.Advice = "See at the receiver what has become of it: it reports the end to the callback URL that it was sent."
		c.Evidence["waitsFor"] = "callback"
	case e.WebhookPollURL != "":
		c.Message, c.Until = "it waits for "+name+", which says that it is in progress, and is polled again", next
		c.Advice = "See at the receiver what has become of it."
		c.Evidence["waitsFor"], c.Evidence["pollURL"] = "poll", e.WebhookPollURL
		if e.LastPollTimestamp != nil {
			c.Evidence["lastPoll"] = stamp(e.LastPollTimestamp.Time)
		}
	case e.NextAttemptAt != nil && e.RetryAfter:
		c.Type, c.Until = why.RetryAfter, next
		c.Message = name + " has asked to be called again at " + stamp(next)
		c.Advice = "Wait, or see at the receiver why it takes no calls."
	case e.NextAttemptAt != nil:
		c.Type, c.Until = why.BackOff, next
		c.Message = name + " has failed and is called again at " + stamp(next)
		c.Advice = "See at the receiver why it does not answer as it should."
		if f, ok := ForbiddenText(e.Message); ok && strings.HasPrefix(e.Message, credentials) {
			maps.Copy(f.Evidence, c.Evidence)
			f.Since, f.Until = c.Since, c.Until
			return f, true
		}
	case known.Began != nil:
		c.Message, c.Since = "its call of "+name+" is due", DueSince(op, t, now)
		c.Progress = now.Sub(c.Since) < soon
	default:
		c.Message = "it calls " + name
		if c.Progress = e.RetriesCount > 0 || now.Sub(c.Since) < longest; !c.Progress {
			c.Advice = "Nothing is known of the call any more: see whether fairlead controller runs for its namespace."
		}
	}
	return c, true
}

// credentials is what messages begin with that tell of credentials, and hold no text of a receiver.
const credentials = "spec.auth.serviceAccountToken: "

func evidence(e *v1alpha1.WebhookCallStatus, t Target) map[string]string {
	m := map[string]string{"webhook": t.Webhook, "attempts": strconv.Itoa(int(e.RetriesCount) + 1)}
	if t.Purpose != Main {
		m["purpose"] = t.Purpose
	}
	if e.LastStatusCode != 0 {
		m["status"] = strconv.Itoa(int(e.LastStatusCode))
	}
	if e.Message != "" {
		m["error"] = e.Message
		if e.WebhookPollURL != "" || e.AwaitsCallback() {
			m["answer"] = e.Message
			delete(m, "error")
		}
	}
	return m
}

// title names a call in a sentence.
func title(t Target) string {
	switch t.Purpose {
	case Compensate:
		return "webhook " + t.Webhook + " (compensation)"
	case Notify:
		return "webhook " + t.Webhook + " (notification)"
	}
	return "webhook " + t.Webhook
}

// expiry is when a call is given up.
func expiry(op *v1alpha1.Operation, t Target, e *v1alpha1.WebhookCallStatus, known Known) time.Time {
	var at time.Time
	if known.Timeout != nil && e.StartedAt != nil {
		if timeout := known.Timeout(t.Webhook); timeout > 0 {
			at = e.StartedAt.Add(timeout)
		}
	}
	if deadline := op.Deadline(); t.Purpose == Main && (at.IsZero() || deadline.Before(at)) {
		return deadline
	}
	return at
}
