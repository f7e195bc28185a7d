package causes

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// Known is knowledge about the calls of an operation beyond the object. Each nil function means that the information is
// not available. The zero value contains no knowledge.
type Known struct {
	// Began returns when a running call began, or the zero time if it is not running.
	Began func(record.Target) time.Time
	// Timeout returns the timeout of a Webhook, or zero if unknown.
	Timeout func(webhook string) time.Duration
	// Try returns the maximum duration of one try or poll of a Webhook, or zero if unknown.
	Try func(webhook string) time.Duration
	// Generation returns the generation of a Webhook, or zero if unknown.
	Generation func(webhook string) int64
	// Next returns when a call is made again if that is later than its record says, or the zero time.
	Next func(record.Target) time.Time
}

const (
	// soon is the grace period for the start of a step. A shorter delay is not reported as trouble.
	soon = 5 * time.Second
	// longest is the maximum duration of a try: the API server accepts no longer requestTimeout.
	longest = 10 * time.Minute
)

// Of returns the causes for which an operation makes no progress, from the object and known. It returns nil if the next
// step is simply due. op is not changed.
func Of(op *v1alpha1.Operation, known Known, now time.Time) []why.Cause {
	if op.Terminal() {
		return over(op)
	}
	var all []why.Cause
	for _, t := range inProgress(op, known, now) {
		all = append(all, t.at(now))
	}
	return all
}

// inProgress is Of for an unfinished operation.
func inProgress(op *v1alpha1.Operation, known Known, now time.Time) (all []told) {
	if late, counts := deadline(op); counts && !now.Before(late.Since) {
		all = append(all, late)
	}
	if !op.PickedUp() {
		return append(all, waiting(op))
	}
	if record.StageOf(op) == record.Stopping {
		return append(all, unended(op))
	}
	for _, c := range awaited(op, known, now) { // these have no bound
		all = append(all, told{Cause: c})
	}
	for _, t := range Due(op, known) {
		if c, ok := call(op, t, known, now); ok {
			all = append(all, c)
		}
	}
	return all
}

// Next returns the cause for an unfinished operation without any other cause.
func Next(op *v1alpha1.Operation, now time.Time) why.Cause { return next(op).at(now) }

func next(op *v1alpha1.Operation) told {
	since := LastStep(op)
	return told{why.Cause{
		Type: why.Parked, Message: "its next step is due", Since: since,
		Advice: "If this lasts, check that fairlead controller is running for its namespace, and check its log.",
	}, wait{bound: since.Add(soon)}}
}

// over returns the causes for an operation that has ended.
func over(op *v1alpha1.Operation) []why.Cause {
	if op.DeletionTimestamp == nil {
		return []why.Cause{ended(op)}
	}
	since := op.DeletionTimestamp.Time
	if slices.Contains(op.Finalizers, v1alpha1.Finalizer) {
		return []why.Cause{{
			Type: why.Parked, Message: "it has ended and is being deleted; its finalizer is about to be removed", Since: since,
			Evidence: map[string]string{"finalizer": v1alpha1.Finalizer, "phase": string(op.Status.Phase)},
			Advice:   "Check that fairlead controller is running for its namespace and may update operations.",
		}}
	}
	var foreign []why.Cause
	for _, f := range op.Finalizers {
		foreign = append(foreign, why.Cause{
			Type: why.ForeignFinalizer, Since: since,
			Message:  "it has ended and is being deleted, but finalizer " + f + ", which is not Fairlead's, blocks the deletion",
			Evidence: map[string]string{"finalizer": f, "phase": string(op.Status.Phase)},
			Advice:   "The owner of the finalizer has to remove it. Remove it yourself only if nothing is left to clean up.",
		})
	}
	return foreign
}

// deadline returns the cause for a missed deadline, which applies from Since on. It returns false if the deadline no
// longer has an effect.
func deadline(op *v1alpha1.Operation) (told, bool) {
	at, stage := op.Deadline(), record.StageOf(op)
	return told{why.Cause{
		Type: why.DeadlinePassed, Since: at, Evidence: map[string]string{"timeout": op.Timeout().String()},
		Message: "its timeout expired at " + stamp(at) + ", but no controller has recorded its end",
		Advice:  "Check that fairlead controller is running for its namespace and may write the status of operations.",
	}, wait{bound: at.Add(soon)}}, stage == record.Requested || stage == record.Calling || stage == record.Stopping
}

// Led returns the deadline that led to the current calls of an operation. The causes of those calls come first.
func Led(op *v1alpha1.Operation) []why.Cause {
	failed, decided := record.Failure(op)
	if op.Terminal() || !decided || failed != v1alpha1.ReasonTimedOut && failed != v1alpha1.ReasonWebhookNotFound {
		return nil
	}
	at := op.Deadline()
	return []why.Cause{{
		Type: why.DeadlinePassed, Since: at, Depth: 1, Progress: true,
		Message:  "its timeout expired at " + stamp(at) + ", so it has failed, but a subsequent call has not ended",
		Evidence: map[string]string{"timeout": op.Timeout().String(), "reason": failed},
	}}
}

// waiting returns the cause for a request that no executor has picked up.
func waiting(op *v1alpha1.Operation) told {
	since := op.ScheduledAt()
	c := told{why.Cause{
		Type: why.Parked, Message: "no controller has picked it up", Since: since, Until: op.Deadline(),
		Evidence: map[string]string{"operation": op.EffectiveID()},
		Advice:   "Check that fairlead controller is running for its namespace, and that it leads or holds its slot.",
	}, wait{bound: since.Add(soon)}}
	if earlier := op.Status.OperationID; earlier != "" {
		c.Message += "; its status is still that of the previous request"
		c.Evidence["earlier"] = earlier
	}
	return c
}

// unended returns the cause for a cancelled or deleted operation whose end is not recorded.
func unended(op *v1alpha1.Operation) told {
	c := told{Cause: why.Cause{
		Type: why.Parked, Message: "its cancellation was requested, but no controller has recorded its end",
		Since:    LastStep(op),
		Evidence: map[string]string{"cancelRequested": "true"},
		Advice:   "Check that fairlead controller is running for its namespace and may write the status of operations.",
	}}
	if at := op.DeletionTimestamp; at != nil {
		c.Message, c.Since = "it was deleted, but no controller has recorded its end", at.Time
		c.Evidence, c.bound = map[string]string{"deleted": stamp(at.Time)}, at.Add(soon)
	}
	return c
}

// LastStep returns when an operation last made progress, as far as its status shows: it was picked up, or one of its
// calls ended.
func LastStep(op *v1alpha1.Operation) time.Time {
	last := op.ScheduledAt()
	if !op.PickedUp() {
		return last
	}
	if at := op.Status.InitializedAt; at != nil {
		last = at.Time
	}
	for _, list := range [][]v1alpha1.WebhookCallStatus{op.Status.Webhooks, op.Status.Compensations} {
		for i := range list {
			if at := list[i].FinishedAt; at != nil && at.After(last) {
				last = at.Time
			}
		}
	}
	return last
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
