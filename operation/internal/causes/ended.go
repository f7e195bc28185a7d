package causes

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// mend says what can be done after a failure, by its reason.
var mend = map[string]string{
	v1alpha1.ReasonTargetRefused: "Have whoever runs the controller allow the target with --allow-target, if it is meant to be " +
		"called, and retry the operation.",
	v1alpha1.ReasonWebhookFailed:    "See what the receiver has answered, mend it there, and retry the operation.",
	v1alpha1.ReasonRetriesExhausted: "See why the receiver did not answer as it should, and retry the operation.",
	v1alpha1.ReasonTimedOut:         "See what took so long, give it more time with timeout if that was right, and retry it.",
	v1alpha1.ReasonCanceled:         "It was asked to end. Retry it if it is wanted after all.",
	v1alpha1.ReasonInvalid:          "Mend the field that the error names, and retry the operation.",
	v1alpha1.ReasonWebhookNotFound:  "Make the Webhook, or leave it out of the request, and retry the operation.",
	v1alpha1.ReasonTooLarge:         "Make the request object smaller, and schedule it again.",
	v1alpha1.ReasonNotReleased:      "Release what the error names, and retry the operation.",
}

// ended is said of an operation that has ended.
func ended(op *v1alpha1.Operation) why.Cause {
	reason, message := v1alpha1.ReasonSucceeded, ""
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); c != nil &&
		op.Status.Phase == v1alpha1.PhaseFailed {
		reason, message = c.Reason, c.Message
	}
	c := why.Cause{
		Type: why.Ended, Message: "it has ended with reason " + reason, Advice: "",
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
	if at == nil {
		return c
	}
	c.Since = at.Time
	c.Message = "it ended at " + stamp(at.Time) + " with reason " + reason
	if ttl := op.Spec.TTLAfterFinished; ttl != nil { // then it is deleted
		c.Until = at.Add(ttl.Duration)
		c.Evidence["deletedAfter"] = ttl.Duration.String()
	}
	return c
}

// blame names the call that has failed, of which text tells, and says what its last answer means.
func blame(c *why.Cause, op *v1alpha1.Operation, reason, text string) {
	var e *v1alpha1.WebhookCallStatus
	for i := range op.Status.Webhooks {
		it := &op.Status.Webhooks[i]
		// those that fail with it are cut off by it, and say what they were at
		if it.State == v1alpha1.PhaseFailed && (e == nil || goesBefore(it, e, text)) {
			e = it
		}
	}
	if e == nil {
		return
	}
	for key, value := range evidence(op, e, Target{Main, e.WebhookID}) {
		if key != "answer" {
			c.Evidence[key] = value
		}
	}
	if reason != v1alpha1.ReasonWebhookFailed && reason != v1alpha1.ReasonRetriesExhausted {
		return
	}
	if advice := remedy(e); e.LastStatusCode == 0 || byStatus(e.LastStatusCode) != "" {
		c.Advice = advice + " Then retry the operation."
	}
}

// goesBefore says that a call has failed before another one or, with it, is the one of which the error of the operation
// tells.
func goesBefore(e, other *v1alpha1.WebhookCallStatus, text string) bool {
	at, others := e.FinishedAt, other.FinishedAt
	if at == nil || others == nil || at.Equal(others) {
		return e.Message != "" && strings.Contains(text, e.Message)
	}
	return at.Before(others)
}
