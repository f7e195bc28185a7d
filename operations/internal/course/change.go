package course

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Change is a change of the status. It does nothing if it no longer applies.
type Change func(op *v1alpha1.Operation)

// Begin resets the status for the present request. It moves the outcome of the previous request to the history. placeOf
// returns the place of the operation.
func Begin(now time.Time, placeOf func(*v1alpha1.Operation) string) Change {
	return func(op *v1alpha1.Operation) {
		if op.PickedUp() {
			return
		}
		old, accepted := op.Status, placeOf(op)
		op.Status = v1alpha1.OperationStatus{
			Phase:              v1alpha1.PhaseInProgress,
			OperationID:        op.EffectiveID(),
			OperationType:      op.Spec.OperationType,
			AcceptedVersion:    accepted,
			InitializedAt:      Micro(now),
			ObservedGeneration: op.Generation,
			History:            old.History,
		}
		if old.OperationID != "" && old.Phase.Terminal() {
			past := v1alpha1.FinishedOperation{
				OperationID: old.OperationID, OperationType: old.OperationType, Phase: old.Phase,
			}
			past.FinishedAt = *Micro(now)
			if old.FinishedAt != nil {
				past.FinishedAt = *old.FinishedAt
			}
			if c := meta.FindStatusCondition(old.Conditions, v1alpha1.ConditionError); c != nil &&
				old.Phase == v1alpha1.PhaseFailed {
				past.Reason = c.Reason
			}
			history := append([]v1alpha1.FinishedOperation{past}, old.History...)
			op.Status.History = history[:min(len(history), v1alpha1.MaxHistory)]
		}
		condition(op, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "", now)
		condition(op, v1alpha1.ConditionError, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "", now)
	}
}

// Await records why the operation waits, by reason and message. An empty message records that it no longer waits.
func Await(operation, reason, message string, now time.Time) Change {
	return func(op *v1alpha1.Operation) {
		if !concerns(op, operation) || reason == v1alpha1.ReasonWaitingForLock && len(op.Status.Webhooks) > 0 {
			return
		}
		for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionError} {
			if !meta.IsStatusConditionTrue(op.Status.Conditions, name) {
				condition(op, name, metav1.ConditionFalse, reason, message, now)
			}
		}
	}
}

// Attempt records that a call is about to be made (O2), with the generation of its Webhook, or 0 if unknown.
func Attempt(op *v1alpha1.Operation, t record.Target, id string, generation int64, now time.Time) Change {
	operation := op.EffectiveID()
	return func(op *v1alpha1.Operation) {
		if !concerns(op, operation) {
			return
		}
		e := record.Entry(&op.Status, t)
		if e == nil {
			e = insert(op, t)
		} else if e.State.Terminal() || e.AttemptID == id { // the id is equal if the answer to the write was lost
			return
		} else if e.AttemptID != "" {
			e.RetriesCount++
		}
		if e.StartedAt == nil {
			e.StartedAt = Micro(now)
		}
		e.IdempotencyKey = webhook.CallID(op.Namespace, operation, t.ID, webhook.Purpose(t.Purpose))
		keepError(e)
		e.AttemptID, e.NextAttemptAt, e.RetryAfter, e.LastStatusCode = id, nil, false, 0
		e.WebhookGeneration = generation
	}
}

// Again records that the recorded attempt of a call is about to be repeated.
func Again(op *v1alpha1.Operation, t record.Target, generation int64) Change {
	operation, attempt, count := op.EffectiveID(), "", int32(0)
	if e := record.Entry(&op.Status, t); e != nil {
		attempt, count = e.AttemptID, e.RetriesCount+1
	}
	return func(op *v1alpha1.Operation) {
		e := record.Entry(&op.Status, t)
		if !concerns(op, operation) || e == nil || e.State.Terminal() || e.AttemptID != attempt || e.RetriesCount > count {
			return
		}
		keepError(e)
		e.RetriesCount, e.NextAttemptAt, e.RetryAfter, e.LastStatusCode = count, nil, false, 0
		e.WebhookGeneration = generation
	}
}

// keepError adds the last status code to the message of a call. The message stays during the next try, but the status
// code does not: a status code without a next try means that the receiver has accepted the call.
func keepError(e *v1alpha1.WebhookCallStatus) {
	answered := "answered " + strconv.Itoa(int(e.LastStatusCode))
	if e.LastStatusCode != 0 && !strings.HasPrefix(e.Message, answered) {
		e.Message = Tidy(strings.TrimSuffix(answered+": "+e.Message, ": "))
	}
}

// Verdict is the meaning of an answer for a call.
type Verdict struct {
	State   v1alpha1.Phase // In Progress: a retry, a poll or the callback follows
	Code    int
	Reason  string // of a failure
	Message string
	PollURL string
	Polled  bool
	Next    time.Time // of the next try or poll; zero for none
	Asked   bool      // the receiver asked for Next
}

// Judged records the result of a call. It applies only while the status names the same attempt (fencing). A failed
// webhook determines the outcome of the operation.
func Judged(op *v1alpha1.Operation, t record.Target, v Verdict, now time.Time) Change {
	operation := op.EffectiveID()
	var attempt string
	if e := record.Entry(&op.Status, t); e != nil {
		attempt = e.AttemptID
	}
	return func(op *v1alpha1.Operation) {
		if !concerns(op, operation) {
			return
		}
		e := record.Entry(&op.Status, t)
		if e == nil {
			e = insert(op, t)
		} else if e.State.Terminal() || e.AttemptID != attempt {
			return
		}
		e.State, e.LastStatusCode, e.Message = v.State, int32(v.Code), Tidy(v.Message)
		e.NextAttemptAt, e.RetryAfter = nil, v.Asked
		if v.PollURL != "" {
			e.WebhookPollURL = v.PollURL
		}
		if v.Polled {
			e.LastPollTimestamp = Micro(now)
		}
		if !v.Next.IsZero() {
			e.NextAttemptAt = Micro(v.Next)
		}
		if !v.State.Terminal() {
			return
		}
		e.FinishedAt = Micro(now)
		if v.State == v1alpha1.PhaseFailed && t.Purpose == record.Main {
			Fail(operation, v.Reason, v.Message, now)(op)
		}
	}
}

// Fail records failure as the outcome. The first reason stays.
func Fail(operation, reason, message string, now time.Time) Change {
	return func(op *v1alpha1.Operation) {
		if concerns(op, operation) && !meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError) {
			condition(op, v1alpha1.ConditionError, metav1.ConditionTrue, reason, Tidy(message), now)
		}
	}
}

// Finish records the end that was decided on the given state. Unfinished webhooks become failed. Finish does nothing if
// the state has changed such that the decision would be different.
func Finish(decided *v1alpha1.Operation, phase v1alpha1.Phase, now time.Time) Change {
	operation, succeeded := decided.EffectiveID(), record.SucceededCalls(decided)
	return func(op *v1alpha1.Operation) {
		failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
		// another client removed the reason, or a callback arrived, so that a compensation may be necessary
		anew := failed == nil || record.SucceededCalls(op) != succeeded
		if !concerns(op, operation) || phase == v1alpha1.PhaseFailed && anew {
			return
		}
		for i := range op.Status.Webhooks {
			e := &op.Status.Webhooks[i]
			if e.State.Terminal() {
				continue
			}
			e.State, e.FinishedAt, e.NextAttemptAt, e.RetryAfter = v1alpha1.PhaseFailed, Micro(now), nil, false
			if e.Message == "" {
				e.Message = "given up when the operation failed"
			}
		}
		op.Status.Phase, op.Status.FinishedAt, op.Status.ObservedGeneration = phase, Micro(now), op.Generation
		if phase == v1alpha1.PhaseSuccess {
			condition(op, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "", now)
			condition(op, v1alpha1.ConditionError, metav1.ConditionFalse, v1alpha1.ReasonSucceeded, "", now)
			return
		}
		condition(op, v1alpha1.ConditionReady, metav1.ConditionFalse, failed.Reason, failed.Message, now)
	}
}

// concerns reports whether the status is about the given operation and the operation has not ended.
func concerns(op *v1alpha1.Operation, operation string) bool {
	return op.Status.OperationID == operation && op.EffectiveID() == operation && !op.Status.Phase.Terminal()
}

// insert adds the record of a call, in the order of the spec.
func insert(op *v1alpha1.Operation, t record.Target) *v1alpha1.WebhookCallStatus {
	e := v1alpha1.WebhookCallStatus{WebhookID: t.ID, State: v1alpha1.PhaseInProgress}
	switch t.Purpose {
	case record.Notify:
		op.Status.Notification = &e
	case record.Compensate:
		op.Status.Compensations = append(op.Status.Compensations, e)
	default:
		op.Status.Webhooks = append(op.Status.Webhooks, e)
		ordered := make([]v1alpha1.WebhookCallStatus, 0, len(op.Status.Webhooks))
		for _, id := range op.Spec.WebhookIDs {
			if e := record.Entry(&op.Status, record.Target{Purpose: record.Main, ID: id}); e != nil {
				ordered = append(ordered, *e)
			}
		}
		op.Status.Webhooks = ordered
	}
	return record.Entry(&op.Status, t)
}

// Tidy makes a message valid for a status: one line of valid text with a bounded length.
func Tidy(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "\uFFFD"))
	if message = strings.TrimSpace(message); len(message) <= webhook.MaxMessage {
		return message
	}
	const ellipsis = "…"
	cut := webhook.MaxMessage - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + ellipsis
}

func condition(
	op *v1alpha1.Operation, name string, status metav1.ConditionStatus, reason, message string, now time.Time,
) {
	meta.SetStatusCondition(&op.Status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: message, ObservedGeneration: op.Generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// Micro returns a time for a status, rounded up to whole microseconds. Rounding down would let waits end too early.
func Micro(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.Add(time.Microsecond - time.Nanosecond).Truncate(time.Microsecond))
	return &m
}

// Key records the idempotency key of a call that has begun.
func Key(op *v1alpha1.Operation, t record.Target) Change {
	operation := op.EffectiveID()
	return func(op *v1alpha1.Operation) {
		if e := record.Entry(&op.Status, t); concerns(op, operation) && Unkeyed(e) {
			e.IdempotencyKey = webhook.CallID(op.Namespace, operation, t.ID, webhook.Purpose(t.Purpose))
		}
	}
}
