package executor

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Reasons of the Events of an Operation, in addition to those of its condition Error.
const (
	eventStarted   = "Started"
	eventSucceeded = "Succeeded"
)

// reporter reports the course of operations: in metrics, Events, log lines and spans. It has no state of its own.
type reporter struct {
	metrics  *metrics
	recorder Recorder
	spans    spans
	attempts *attempts
	// isQuarantined reports whether a Webhook is quarantined.
	isQuarantined func(namespace, name string) bool
	log           *slog.Logger
}

// began reports that an operation was picked up.
func (r *reporter) began(ctx context.Context, op *v1alpha1.Operation) {
	r.metrics.start(op)
	r.recorder.Operation(op, false, eventStarted, "operation "+op.EffectiveID()+" started")
	r.log.InfoContext(ctx, "operation started", facts(op)...)
}

// wait is the reason for which an operation waits.
type wait struct {
	reason, message string
	behind          *course.Predecessor // nil: not for another operation
	missing         []string            // Webhooks
	withheld        []string            // credentials
}

// waitOf returns the reason for which an operation waits: for another operation, for missing or quarantined Webhooks,
// for the release of credentials, or for a share of the namespace. Otherwise its message is empty.
func waitOf(
	namespace string, behind *course.Predecessor, d course.Decision, share string,
	isQuarantined func(namespace, name string) bool,
) wait {
	w := wait{reason: v1alpha1.ReasonInProgress, behind: behind, missing: d.Missing, withheld: d.Withheld}
	switch missing := d.Missing; {
	case behind != nil:
		w.reason, w.message = v1alpha1.ReasonWaitingForLock, "waiting for the end of "+behind.String()
	case len(missing) == 1 && isQuarantined(namespace, missing[0]):
		w.reason = v1alpha1.ReasonWaitingForWebhook
		w.message = "waiting for webhook " + missing[0] + ", which is quarantined: it has to be changed"
	case len(missing) == 1:
		w.reason = v1alpha1.ReasonWaitingForWebhook
		w.message = "waiting for webhook " + missing[0] + ", which does not exist in namespace " + namespace
	case len(missing) > 1:
		w.reason = v1alpha1.ReasonWaitingForWebhook
		w.message = "waiting for webhooks " + strings.Join(missing, ", ") + ", which do not exist in namespace " + namespace
	case len(d.Withheld) > 0:
		w.reason, w.message = v1alpha1.ReasonNotReleased, "waiting for credentials: "+strings.Join(d.Withheld, "; ")
	case share != "":
		w.reason = v1alpha1.ReasonWaitingForShare
		w.message = "waiting for the share of namespace " + namespace + " of " + share
	}
	w.message = course.Tidy(w.message)
	return w
}

// showWait sets the reason for which the operation waits in its condition Ready, unless it is there already. It writes
// nothing: the change is part of the next write.
func (r *reporter) showWait(
	ctx context.Context, d draft, share string, behind *course.Predecessor, decision course.Decision, now time.Time,
) {
	w := waitOf(d.key.Namespace, behind, decision, share, r.isQuarantined)
	shown := meta.FindStatusCondition(d.op.Status.Conditions, v1alpha1.ConditionReady)
	if shown == nil || shown.Message == w.message {
		return
	}
	before := shown.Reason
	d.apply(course.Await(d.op.EffectiveID(), w.reason, w.message, now))
	r.waits(ctx, d.op, w, before)
}

// waits reports that an operation waits. before is the reason that its condition Ready has had until now.
func (r *reporter) waits(ctx context.Context, op *v1alpha1.Operation, w wait, before string) {
	switch {
	case w.behind != nil:
		r.recorder.Operation(op, false, w.reason, w.message)
		r.log.InfoContext(ctx, "operation waits for another one", append(facts(op), "behind", w.behind.Key,
			"behindOperation", w.behind.Op.EffectiveID(), "locked",
			w.behind.Resource.ResourceType+"/"+w.behind.Resource.ResourceID)...)
	case len(w.missing) > 0 && before != w.reason: // once, and not again when some of them appear
		r.recorder.Operation(op, true, v1alpha1.ReasonWebhookNotFound, w.message)
		r.log.WarnContext(ctx, "operation waits for webhooks that do not exist",
			append(facts(op), "webhooks", w.missing)...)
	case len(w.withheld) > 0 && before != w.reason:
		r.recorder.Operation(op, true, w.reason, w.message)
		r.log.WarnContext(ctx, "operation waits for credentials that are not released",
			append(facts(op), "withheld", w.withheld)...)
	}
}

// called counts a call that has returned.
func (r *reporter) called(f *flight, result webhook.Result) {
	r.metrics.result(f.target, result)
}

// judged reports the result of a call that counts. message is that of the verdict.
func (r *reporter) judged(
	ctx context.Context, op *v1alpha1.Operation, f *flight, result webhook.Result, message string,
) {
	r.log.InfoContext(ctx, "webhook called", "operation", op.EffectiveID(),
		"key", store.Key{Namespace: op.Namespace, Name: op.Name}, "webhook", f.target.ID, "purpose", f.target.Purpose,
		"verdict", result.Verdict, "status", result.StatusCode, "took", result.Duration, "message", message)
}

// outdatedCRD reports that no call can be made, since the API server drops its key.
func (r *reporter) outdatedCRD(ctx context.Context, op *v1alpha1.Operation) {
	r.recorder.Operation(op, true, v1alpha1.ReasonOutdatedCRD, errOutdatedCRD.Error())
	r.log.ErrorContext(ctx, "cannot call webhooks", append(facts(op), "crd", crdName, "error", errOutdatedCRD)...)
}

// ended reports the end of an operation. Only the writer of the terminal status calls it, once.
func (r *reporter) ended(ctx context.Context, op *v1alpha1.Operation) {
	reason, message := eventSucceeded, "operation "+op.EffectiveID()+" succeeded"
	failed := op.Status.Phase == v1alpha1.PhaseFailed
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); failed && c != nil {
		reason, message = c.Reason, "operation "+op.EffectiveID()+" failed: "+c.Message
	}
	r.spans.showOutcome(ctx, op)
	r.attempts.end(store.Key{Namespace: op.Namespace, Name: op.Name})
	r.metrics.end(op, reason)
	r.recorder.Operation(op, failed, reason, message)
	r.log.InfoContext(ctx, "operation ended", append(facts(op), "phase", op.Status.Phase, "reason", reason,
		"took", op.Status.FinishedAt.Sub(op.ScheduledAt()))...)
}

// facts returns the log fields of an operation.
func facts(op *v1alpha1.Operation) []any {
	return []any{
		"operation", op.EffectiveID(), "type", op.Spec.OperationType, "category", op.Spec.OperationCategory,
		"resource", op.Spec.ResourceType + "/" + op.Spec.ResourceID, "namespace", op.Namespace,
		"correlation", op.Spec.CorrelationID,
	}
}
