package executor

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// Reasons of the Events of an Operation, in addition to those of its condition Error.
const (
	eventStarted   = "Started"
	eventSucceeded = "Succeeded"
)

// began reports that an operation was picked up.
func (e *Executor) began(ctx context.Context, op *v1alpha1.Operation) {
	e.metrics.start(op)
	e.recorder.Operation(op, false, eventStarted, "operation "+op.EffectiveID()+" started")
	e.log.InfoContext(ctx, "operation started", e.facts(op)...)
}

// showWait sets the reason for which the operation waits in its condition Ready, unless it is there already. The
// operation may wait for another operation, for missing or quarantined Webhooks, for the release of credentials, or
// for a share of the namespace. Otherwise showWait clears the message. It writes nothing: the change is part of the
// next write.
func (e *Executor) showWait(ctx context.Context, r *run, behind *course.Predecessor, d course.Decision, now time.Time) {
	missing := d.Missing
	reason, message, share := v1alpha1.ReasonInProgress, "", r.share()
	switch {
	case behind != nil:
		reason, message = v1alpha1.ReasonWaitingForLock, course.Tidy("waiting for the end of "+behind.String())
	case len(missing) == 1 && e.quarantine.hasNamed(r.key.Namespace, missing[0]):
		reason, message = v1alpha1.ReasonWaitingForWebhook,
			course.Tidy("waiting for webhook "+missing[0]+", which is quarantined: it has to be changed")
	case len(missing) == 1:
		reason, message = v1alpha1.ReasonWaitingForWebhook,
			course.Tidy("waiting for webhook "+missing[0]+", which does not exist in namespace "+r.key.Namespace)
	case len(missing) > 1:
		reason = v1alpha1.ReasonWaitingForWebhook
		message = course.Tidy("waiting for webhooks " + strings.Join(missing, ", ") + ", which do not exist in namespace " +
			r.key.Namespace)
	case len(d.Withheld) > 0:
		reason, message = v1alpha1.ReasonNotReleased, course.Tidy("waiting for credentials: "+strings.Join(d.Withheld, "; "))
	case share != "":
		reason, message = v1alpha1.ReasonWaitingForShare,
			course.Tidy("waiting for the share of namespace "+r.key.Namespace+" of "+share)
	}
	shown := meta.FindStatusCondition(r.op.Status.Conditions, v1alpha1.ConditionReady)
	if shown == nil || shown.Message == message {
		return
	}
	before := shown.Reason
	r.apply(course.Await(r.op.EffectiveID(), reason, message, now))
	switch {
	case behind != nil:
		e.recorder.Operation(r.op, false, reason, message)
		e.log.InfoContext(ctx, "operation waits for another one", append(e.facts(r.op), "behind", behind.Key,
			"behindOperation", behind.Op.EffectiveID(), "locked",
			behind.Resource.ResourceType+"/"+behind.Resource.ResourceID)...)
	case len(missing) > 0 && before != reason: // once, and not again when some of them appear
		e.recorder.Operation(r.op, true, v1alpha1.ReasonWebhookNotFound, message)
		e.log.WarnContext(ctx, "operation waits for webhooks that do not exist",
			append(e.facts(r.op), "webhooks", missing)...)
	case len(d.Withheld) > 0 && before != reason:
		e.recorder.Operation(r.op, true, reason, message)
		e.log.WarnContext(ctx, "operation waits for credentials that are not released",
			append(e.facts(r.op), "withheld", d.Withheld)...)
	}
}

// ended reports the end of an operation. Only the writer of the terminal status calls it, once.
func (e *Executor) ended(ctx context.Context, op *v1alpha1.Operation) {
	reason, message := eventSucceeded, "operation "+op.EffectiveID()+" succeeded"
	failed := op.Status.Phase == v1alpha1.PhaseFailed
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); failed && c != nil {
		reason, message = c.Reason, "operation "+op.EffectiveID()+" failed: "+c.Message
	}
	e.showOutcome(ctx, op)
	e.attempts.end(store.Key{Namespace: op.Namespace, Name: op.Name})
	e.metrics.end(op, reason)
	e.recorder.Operation(op, failed, reason, message)
	e.log.InfoContext(ctx, "operation ended", append(e.facts(op), "phase", op.Status.Phase, "reason", reason,
		"took", op.Status.FinishedAt.Sub(op.ScheduledAt()))...)
}

func (e *Executor) facts(op *v1alpha1.Operation) []any {
	return []any{
		"operation", op.EffectiveID(), "type", op.Spec.OperationType, "category", op.Spec.OperationCategory,
		"resource", op.Spec.ResourceType + "/" + op.Spec.ResourceID, "namespace", op.Namespace,
		"correlation", op.Spec.CorrelationID,
	}
}
