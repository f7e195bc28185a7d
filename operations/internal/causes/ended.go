package causes

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// mend lists advice after a failure, by reason.
var mend = map[string]string{
	v1alpha1.ReasonTargetRefused: "If calls to this target are intended, allow it with --allow-target of the " +
		"controller, and retry the " +
		"operation.",
	v1alpha1.ReasonWebhookFailed:    "Check the response of the receiver, fix the cause there, and retry the operation.",
	v1alpha1.ReasonRetriesExhausted: "Check why the receiver returned an unexpected response, and retry the operation.",
	v1alpha1.ReasonTimedOut: "Check what took so long, raise timeout if that duration is expected, and retry " +
		"the operation.",
	v1alpha1.ReasonCanceled:        "Its cancellation was requested. Retry the operation if it is still needed.",
	v1alpha1.ReasonInvalid:         "Correct the field that the error names, and retry the operation.",
	v1alpha1.ReasonWebhookNotFound: "Create the Webhook, or leave it out of the request, and retry the operation.",
	v1alpha1.ReasonTooLarge:        "Make the request object smaller, and schedule it again.",
	v1alpha1.ReasonNotReleased: "Label or annotate the object that the error names, so that operations may use it, " +
		"and retry the operation.",
}

// ended returns the cause for an operation that has ended.
func ended(op *v1alpha1.Operation) why.Cause {
	reason, message := v1alpha1.ReasonSucceeded, ""
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); c != nil &&
		op.Status.Phase == v1alpha1.PhaseFailed {
		reason, message = c.Reason, c.Message
	}
	c := why.Cause{
		Type: why.Ended, Message: "it ended with reason " + reason, Advice: "",
		Evidence: map[string]string{
			"phase": string(op.Status.Phase), "reason": reason, "operation": op.EffectiveID(),
		},
	}
	if op.Status.Phase == v1alpha1.PhaseFailed {
		c.Advice = mend[reason]
		blame(&c, op, reason, message)
	}
	if message != "" {
		c.Evidence["error"] = message
	}
	at := op.Status.FinishedAt
	if at != nil {
		c.Since = at.Time
		c.Message = "it ended at " + stamp(at.Time) + " with reason " + reason
	}
	if op.Status.Phase == v1alpha1.PhaseFailed {
		uncompensated(&c, op)
	}
	if at == nil {
		return c
	}
	if ttl := op.Spec.TTLAfterFinished; ttl != nil { // it is deleted after the TTL
		c.Until = at.Add(ttl.Duration)
		c.Evidence["deletedAfter"] = ttl.Duration.String()
	}
	return c
}

// blame adds the failed call that the error text describes, and advice for its last answer.
func blame(c *why.Cause, op *v1alpha1.Operation, reason, text string) {
	e := failedFirst(op, text)
	if e == nil {
		return
	}
	for key, value := range evidence(op, e, record.Target{Purpose: record.Main, ID: e.WebhookID}) {
		if key != "answer" {
			c.Evidence[key] = value
		}
	}
	if reason != v1alpha1.ReasonWebhookFailed && reason != v1alpha1.ReasonRetriesExhausted {
		return
	}
	if advice := remedy(e); e.LastStatusCode == 0 || byStatus(e.LastStatusCode) != "" || misfitting(e) != "" {
		c.Advice = advice + " Then retry the operation."
	}
}

// failedFirst returns the main call that failed first, preferably the one that text describes, or nil.
func failedFirst(op *v1alpha1.Operation, text string) (e *v1alpha1.WebhookCallStatus) {
	for i := range op.Status.Webhooks {
		it := &op.Status.Webhooks[i]
		// calls that failed at the same time were cut off by it and carry their own message
		if it.State == v1alpha1.PhaseFailed && (e == nil || goesBefore(it, e, text)) {
			e = it
		}
	}
	return e
}

// firstFailure describes the failure that led to the compensations.
func firstFailure(op *v1alpha1.Operation) string {
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
	if c == nil {
		return "the operation failed first"
	}
	if e := failedFirst(op, c.Message); e != nil {
		return title(record.Target{Purpose: record.Main, ID: e.WebhookID}) + " failed first: " + cmp.Or(e.Message, c.Message)
	}
	return "the operation failed first with reason " + c.Reason + ": " + c.Message
}

// uncompensated adds the failed compensations to the cause of a failed operation.
func uncompensated(c *why.Cause, op *v1alpha1.Operation) {
	for i := range op.Status.Compensations {
		e := &op.Status.Compensations[i]
		if e.State != v1alpha1.PhaseFailed {
			continue
		}
		name := title(record.Target{Purpose: record.Compensate, ID: e.WebhookID})
		if c.Evidence["compensation"] == "" {
			c.Message += "; " + firstFailure(op)
			c.Evidence["compensation"], c.Evidence["compensationError"] = e.WebhookID, e.Message
			c.Advice += " Steps that had succeeded before are not undone. Check the receiver of " + name + "."
		}
		c.Message += "; then " + name + " failed: " + e.Message
	}
}

// goesBefore reports whether a call failed before another one. On a tie it reports whether the error text of the
// operation describes the call.
func goesBefore(e, other *v1alpha1.WebhookCallStatus, text string) bool {
	at, others := e.FinishedAt, other.FinishedAt
	if at == nil || others == nil || at.Equal(others) {
		return e.Message != "" && strings.Contains(text, e.Message)
	}
	return at.Before(others)
}
