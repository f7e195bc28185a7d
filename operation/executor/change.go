package executor

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/webhook"
)

// begin makes the status be about the present request. What the status said of the request before goes to history.
// placeOf tells the place of the operation.
func begin(now time.Time, placeOf func(*v1alpha1.Operation) string) change {
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
			InitializedAt:      micro(now),
			ObservedGeneration: op.Generation,
			History:            old.History,
		}
		if old.OperationID != "" && old.Phase.Terminal() {
			past := v1alpha1.FinishedOperation{
				OperationID: old.OperationID, OperationType: old.OperationType, Phase: old.Phase,
			}
			past.FinishedAt = *micro(now)
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

// await shows for what the operation waits, which reason and message say, or with an empty message that it does so no
// more.
func await(operation, reason, message string, now time.Time) change {
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

// attempt records that a call is about to be made (O2).
func attempt(op *v1alpha1.Operation, t target, id string, now time.Time) change {
	operation := op.EffectiveID()
	return func(op *v1alpha1.Operation) {
		if !concerns(op, operation) {
			return
		}
		e := entry(&op.Status, t)
		if e == nil {
			e = insert(op, t)
		} else if e.State.Terminal() || e.AttemptID == id { // the latter when the answer to the write was lost
			return
		} else if e.AttemptID != "" {
			e.RetriesCount++
		}
		if e.StartedAt == nil {
			e.StartedAt = micro(now)
		}
		if !keyless(e) {
			e.IdempotencyKey = webhook.CallID(op.Namespace, operation, t.id, t.purpose)
		}
		e.AttemptID, e.NextAttemptAt, e.LastStatusCode, e.Message = id, nil, 0, ""
	}
}

// verdict is what an answer means for a call.
type verdict struct {
	state   v1alpha1.Phase // In Progress: tried or polled again, or waiting for the callback
	code    int
	reason  string // of a failure
	message string
	pollURL string
	polled  bool
	next    time.Time // of the next try or poll; zero for none
}

// judged records what a call has brought. It applies only while the status still names the attempt (fencing). A failed
// webhook decides the outcome of the operation.
func judged(op *v1alpha1.Operation, t target, v verdict, now time.Time) change {
	operation := op.EffectiveID()
	var attempt string
	if e := entry(&op.Status, t); e != nil {
		attempt = e.AttemptID
	}
	return func(op *v1alpha1.Operation) {
		if !concerns(op, operation) {
			return
		}
		e := entry(&op.Status, t)
		if e == nil {
			e = insert(op, t)
		} else if e.State.Terminal() || e.AttemptID != attempt {
			return
		}
		e.State, e.LastStatusCode, e.Message, e.NextAttemptAt = v.state, int32(v.code), tidy(v.message), nil
		if v.pollURL != "" {
			e.WebhookPollURL = v.pollURL
		}
		if v.polled {
			e.LastPollTimestamp = micro(now)
		}
		if !v.next.IsZero() {
			e.NextAttemptAt = micro(v.next)
		}
		if !v.state.Terminal() {
			return
		}
		e.FinishedAt = micro(now)
		if v.state == v1alpha1.PhaseFailed && t.purpose == webhook.Main {
			fail(operation, v.reason, v.message, now)(op)
		}
	}
}

// fail decides that the outcome is failure. The first reason stays.
func fail(operation, reason, message string, now time.Time) change {
	return func(op *v1alpha1.Operation) {
		if concerns(op, operation) && !meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError) {
			condition(op, v1alpha1.ConditionError, metav1.ConditionTrue, reason, tidy(message), now)
		}
	}
}

// finish records the end. Webhooks that were not finished by then have failed.
func finish(operation string, phase v1alpha1.Phase, now time.Time) change {
	return func(op *v1alpha1.Operation) {
		failed := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
		// somebody has taken the reason away: it is decided anew
		if !concerns(op, operation) || phase == v1alpha1.PhaseFailed && failed == nil {
			return
		}
		for i := range op.Status.Webhooks {
			e := &op.Status.Webhooks[i]
			if e.State.Terminal() {
				continue
			}
			e.State, e.FinishedAt, e.NextAttemptAt = v1alpha1.PhaseFailed, micro(now), nil
			if e.Message == "" {
				e.Message = "given up when the operation failed"
			}
		}
		op.Status.Phase, op.Status.FinishedAt, op.Status.ObservedGeneration = phase, micro(now), op.Generation
		if phase == v1alpha1.PhaseSuccess {
			condition(op, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "", now)
			condition(op, v1alpha1.ConditionError, metav1.ConditionFalse, v1alpha1.ReasonSucceeded, "", now)
			return
		}
		condition(op, v1alpha1.ConditionReady, metav1.ConditionFalse, failed.Reason, failed.Message, now)
	}
}

// concerns tells whether the status is about that operation and the operation has not ended.
func concerns(op *v1alpha1.Operation, operation string) bool {
	return op.Status.OperationID == operation && op.EffectiveID() == operation && !op.Status.Phase.Terminal()
}

// insert adds the record of a call, in the order of the spec.
func insert(op *v1alpha1.Operation, t target) *v1alpha1.WebhookCallStatus {
	e := v1alpha1.WebhookCallStatus{WebhookID: t.id, State: v1alpha1.PhaseInProgress}
	switch t.purpose {
	case webhook.Notify:
		op.Status.Notification = &e
	case webhook.Compensate:
		op.Status.Compensations = append(op.Status.Compensations, e)
	default:
		op.Status.Webhooks = append(op.Status.Webhooks, e)
		ordered := make([]v1alpha1.WebhookCallStatus, 0, len(op.Status.Webhooks))
		for _, id := range op.Spec.WebhookIDs {
			if e := entry(&op.Status, target{webhook.Main, id}); e != nil {
				ordered = append(ordered, *e)
			}
		}
		op.Status.Webhooks = ordered
	}
	return entry(&op.Status, t)
}

// tidy makes a message fit for a status: one line of valid text of a bounded length.
func tidy(message string) string {
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

// micro is a time as a status holds it, in whole microseconds, and never an earlier one: what waits for it, or counts
// from it, does not end too soon.
func micro(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.Add(time.Microsecond - time.Nanosecond).Truncate(time.Microsecond))
	return &m
}

// key records the key of a call that is begun.
func key(op *v1alpha1.Operation, t target) change {
	operation := op.EffectiveID()
	return func(op *v1alpha1.Operation) {
		if e := entry(&op.Status, t); concerns(op, operation) && unkeyed(e) {
			e.IdempotencyKey = webhook.CallID(op.Namespace, operation, t.id, t.purpose)
		}
	}
}
