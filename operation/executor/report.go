package executor

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
)

// Reasons of the Events of an Operation, besides those of its condition Error.
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

// showTurn puts into the status for whom the operation waits before its first call, nil for nobody, where that is not said already.
func (e *Executor) showTurn(ctx context.Context, r *run, behind *predecessor, now time.Time) {
	if r.entered {
		return
	}
	message := ""
	if behind != nil {
		message = "waiting for the end of " + behind.String()
	}
	shown := meta.FindStatusCondition(r.op.Status.Conditions, v1alpha1.ConditionReady)
	if shown == nil || shown.Message == tidy(message) {
		return
	}
	r.apply(awaitTurn(r.op.EffectiveID(), message, now))
	if behind == nil {
		return
	}
	e.recorder.Operation(r.op, false, v1alpha1.ReasonWaitingForLock, tidy(message))
	e.log.InfoContext(ctx, "operation waits for another one", append(e.facts(r.op), "behind", behind.key,
		"behindOperation", behind.op.EffectiveID(), "locked", behind.resource.ResourceType+"/"+behind.resource.ResourceID)...)
}

// ended reports the end of an operation. It is called once, by who recorded it.
func (e *Executor) ended(ctx context.Context, op *v1alpha1.Operation) {
	reason, message := eventSucceeded, "operation "+op.EffectiveID()+" succeeded"
	failed := op.Status.Phase == v1alpha1.PhaseFailed
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); failed && c != nil {
		reason, message = c.Reason, "operation "+op.EffectiveID()+" failed: "+c.Message
	}
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
