// Package record reads the record of calls in the status of an Operation. The decision about the next step (package
// course) and its explanation (package causes) both use it, so they always agree about the next call.
package record

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Purpose is the role of a call, with the values of webhook.Purpose.
type Purpose string

// The purposes of calls.
const (
	Main       Purpose = ""
	Compensate Purpose = "compensate"
	Notify     Purpose = "notify"
)

// Target identifies one call of an operation.
type Target struct {
	Purpose Purpose
	ID      string // the name of the Webhook
}

// Stage is the progress of an operation.
type Stage uint8

// The stages of an operation.
const (
	Requested Stage = iota // the status does not describe the present request
	Calling                // Webhooks are called
	Stopping               // cancelled or deleted, and no outcome is recorded
	Failed                 // the outcome is failure: compensations and the notification follow
	Succeeded              // all Webhooks have succeeded: the notification follows
	Ended
)

// StageOf returns the stage of an operation.
func StageOf(op *v1alpha1.Operation) Stage {
	_, failed := Failure(op)
	switch {
	case !op.PickedUp():
		return Requested
	case op.Status.Phase.Terminal():
		return Ended
	case failed:
		return Failed
	case allSucceeded(op):
		return Succeeded
	case op.Spec.CancelRequested, op.DeletionTimestamp != nil:
		return Stopping
	}
	return Calling
}

// Failure returns the recorded reason for which an operation has failed or will fail, or false.
func Failure(op *v1alpha1.Operation) (reason string, failed bool) {
	if !op.PickedUp() {
		return "", false
	}
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError)
	if c == nil || c.Status != metav1.ConditionTrue {
		return "", false
	}
	return c.Reason, true
}

// Due returns the current calls of an operation: those that have not ended and wait for no other call. underWay reports
// whether a call is running. Before a compensation or the notification begins, running calls must end; until then, Due
// returns them instead.
func Due(op *v1alpha1.Operation, underWay func(Target) bool) []Target {
	switch stage := StageOf(op); stage {
	case Calling:
		return open(op)
	case Failed, Succeeded:
		return following(op, stage, underWay)
	}
	return nil
}

// open returns the first unfinished Webhook, or all of them in parallel execution.
func open(op *v1alpha1.Operation) (due []Target) {
	for _, id := range op.Spec.WebhookIDs {
		t := Target{Main, id}
		if !isOpen(op, t) {
			continue
		}
		due = append(due, t)
		if op.Spec.Execution != v1alpha1.ExecutionParallel {
			break
		}
	}
	return due
}

// following returns the calls after a decided outcome.
func following(op *v1alpha1.Operation, outcome Stage, underWay func(Target) bool) (due []Target) {
	for _, id := range op.Spec.WebhookIDs {
		if t := (Target{Main, id}); underWay(t) {
			due = append(due, t)
		}
	}
	if len(due) > 0 {
		return due
	}
	if outcome == Failed && SucceededCalls(op) > 0 {
		for _, id := range op.Spec.CompensateWebhookIDs {
			if t := (Target{Compensate, id}); isOpen(op, t) {
				return []Target{t}
			}
		}
	}
	if t := (Target{Notify, op.Spec.NotifyWebhookID}); t.ID != "" && isOpen(op, t) {
		return []Target{t}
	}
	return nil
}

// UnderWay reports whether a call is running according to the record, for readers that do not make the calls.
func UnderWay(op *v1alpha1.Operation, t Target) bool {
	e := Entry(&op.Status, t)
	cutOff := t.Purpose == Main && (len(op.Status.Compensations) > 0 || op.Status.Notification != nil)
	return e != nil && !cutOff && !e.State.Terminal() && e.AttemptID != "" && e.NextAttemptAt == nil && !e.AwaitsCallback()
}

func isOpen(op *v1alpha1.Operation, t Target) bool {
	e := Entry(&op.Status, t)
	return e == nil || !e.State.Terminal()
}

// SucceededCalls returns the number of succeeded Webhooks of an operation.
func SucceededCalls(op *v1alpha1.Operation) int {
	n := 0
	for i := range op.Status.Webhooks {
		if op.Status.Webhooks[i].State == v1alpha1.PhaseSuccess {
			n++
		}
	}
	return n
}

func allSucceeded(op *v1alpha1.Operation) bool {
	for _, id := range op.Spec.WebhookIDs {
		if e := Entry(&op.Status, Target{Main, id}); e == nil || e.State != v1alpha1.PhaseSuccess {
			return false
		}
	}
	return true
}

// Entry returns the record of a call, or nil if it has not started. The result points into the status.
func Entry(s *v1alpha1.OperationStatus, t Target) *v1alpha1.WebhookCallStatus {
	list := s.Webhooks
	switch t.Purpose {
	case Notify:
		return s.Notification
	case Compensate:
		list = s.Compensations
	}
	for i := range list {
		if list[i].WebhookID == t.ID {
			return &list[i]
		}
	}
	return nil
}
