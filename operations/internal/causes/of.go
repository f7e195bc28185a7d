package causes

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// Known is what somebody knows of the calls of an operation besides the object. The zero value: nothing.
type Known struct {
	// Began is when a call that is under way was begun; zero if it is not under way. Nil: nobody knows.
	Began func(record.Target) time.Time
	// Timeout is that of a Webhook; zero: not known. Nil: nobody knows.
	Timeout func(webhook string) time.Duration
	// Try is how long one try or poll of a Webhook may last; zero: not known. Nil: nobody knows.
	Try func(webhook string) time.Duration
	// Generation is that of a Webhook; zero: not known. Nil: nobody knows.
	Generation func(webhook string) int64
	// Next is when a call is made again, where that is later than its record says; zero: then. Nil: nobody knows.
	Next func(record.Target) time.Time
}

const (
	// soon is within what time something usually begins, so that it is no trouble that it has not.
	soon = 5 * time.Second
	// longest is how long a try lasts at most: the API server takes no longer requestTimeout.
	longest = 10 * time.Minute
)

// Of says why an operation does not move on, from what the object tells; nothing where its next step is simply due. op
// is not changed.
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

// inProgress is Of for an operation that has not ended.
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
	for _, c := range awaited(op, known, now) { // nothing bounds these
		all = append(all, told{Cause: c})
	}
	for _, t := range Due(op, known) {
		if c, ok := call(op, t, known, now); ok {
			all = append(all, c)
		}
	}
	return all
}

// Next is said of an operation that has not ended where there is nothing else to say.
func Next(op *v1alpha1.Operation, now time.Time) why.Cause { return next(op).at(now) }

func next(op *v1alpha1.Operation) told {
	since := LastStep(op)
	return told{why.Cause{
		Type: why.Parked, Message: "its next step is due", Since: since,
		Advice: "If it stays so, see whether fairlead controller runs for its namespace, and what it logs.",
	}, wait{bound: since.Add(soon)}}
}

// over is what there is to say of an operation that has ended.
func over(op *v1alpha1.Operation) []why.Cause {
	if op.DeletionTimestamp == nil {
		return []why.Cause{ended(op)}
	}
	since := op.DeletionTimestamp.Time
	if slices.Contains(op.Finalizers, v1alpha1.Finalizer) {
		return []why.Cause{{
			Type: why.Parked, Message: "it has ended and is deleted, and its finalizer is to be taken away", Since: since,
			Evidence: map[string]string{"finalizer": v1alpha1.Finalizer, "phase": string(op.Status.Phase)},
			Advice:   "See whether fairlead controller runs for its namespace, and may update operations.",
		}}
	}
	var foreign []why.Cause
	for _, f := range op.Finalizers {
		foreign = append(foreign, why.Cause{
			Type: why.ForeignFinalizer, Since: since,
			Message:  "it has ended and is deleted, and finalizer " + f + ", which is not Fairlead's, keeps it",
			Evidence: map[string]string{"finalizer": f, "phase": string(op.Status.Phase)},
			Advice:   "Have its owner take the finalizer away; do it yourself only if nothing is left to be cleaned up.",
		})
	}
	return foreign
}

// deadline tells of an operation whose time is over although it has not ended, which it is from Since on. It is false
// where the deadline has no effect any more.
func deadline(op *v1alpha1.Operation) (told, bool) {
	at, stage := op.Deadline(), record.StageOf(op)
	return told{why.Cause{
		Type: why.DeadlinePassed, Since: at, Evidence: map[string]string{"timeout": op.Timeout().String()},
		Message: "its time was over at " + stamp(at) + ", and no controller has recorded its end",
		Advice:  "See whether fairlead controller runs for its namespace, and may write the status of operations.",
	}, wait{bound: at.Add(soon)}}, stage == record.Requested || stage == record.Calling || stage == record.Stopping
}

// Led tells of the deadline that has led to the calls that an operation is at: those come first.
func Led(op *v1alpha1.Operation) []why.Cause {
	failed, decided := record.Failure(op)
	if op.Terminal() || !decided || failed != v1alpha1.ReasonTimedOut && failed != v1alpha1.ReasonWebhookNotFound {
		return nil
	}
	at := op.Deadline()
	return []why.Cause{{
		Type: why.DeadlinePassed, Since: at, Depth: 1, Progress: true,
		Message:  "its time was over at " + stamp(at) + ", so it has failed, and a call that follows has not ended",
		Evidence: map[string]string{"timeout": op.Timeout().String(), "reason": failed},
	}}
}

// waiting is said of a request that nobody has picked up.
func waiting(op *v1alpha1.Operation) told {
	since := op.ScheduledAt()
	c := told{why.Cause{
		Type: why.Parked, Message: "no controller has picked it up", Since: since, Until: op.Deadline(),
		Evidence: map[string]string{"operation": op.EffectiveID()},
		Advice:   "See whether fairlead controller runs for its namespace, and leads or holds its slot.",
	}, wait{bound: since.Add(soon)}}
	if earlier := op.Status.OperationID; earlier != "" {
		c.Message += "; its status still tells of the request before"
		c.Evidence["earlier"] = earlier
	}
	return c
}

// unended is said of an operation that is to end, which a controller does at once.
func unended(op *v1alpha1.Operation) told {
	c := told{Cause: why.Cause{
		Type: why.Parked, Message: "its cancellation was requested, and no controller has recorded its end", Since: LastStep(op),
		Evidence: map[string]string{"cancelRequested": "true"},
		Advice:   "See whether fairlead controller runs for its namespace, and may write the status of operations.",
	}}
	if at := op.DeletionTimestamp; at != nil {
		c.Message, c.Since = "it was deleted, and no controller has recorded its end", at.Time
		c.Evidence, c.bound = map[string]string{"deleted": stamp(at.Time)}, at.Add(soon)
	}
	return c
}

// LastStep is when an operation moved last, as far as its status tells: it was picked up, or a call of it has ended.
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
