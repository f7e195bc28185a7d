package operations

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
)

// Status is the state of an operation as the HTTP API spells it.
type Status string

// The states of an operation.
const (
	InProgress Status = "IN_PROGRESS"
	Succeeded  Status = "SUCCEEDED"
	Failed     Status = "FAILED"
)

// View is an operation as the HTTP API and the command line present it.
type View struct {
	OperationID       string                     `json:"operationID"`
	OperationType     v1alpha1.OperationType     `json:"operationType"`
	OperationCategory string                     `json:"operationCategory,omitempty"`
	ResourceType      string                     `json:"resourceType"`
	ResourceID        string                     `json:"resourceID"`
	CorrelationID     string                     `json:"correlationID,omitempty"`
	RelatedResources  []v1alpha1.RelatedResource `json:"relatedResources,omitempty"`
	Status            Status                     `json:"status"`
	// Waiting says why no call is made: another operation holds a lock, a Webhook does not exist, credentials are not
	// released, or the CustomResourceDefinition is too old.
	Waiting string `json:"waiting,omitempty"`
	// LastError is the error of the last attempt or poll of an unfinished call, after the name of its Webhook. It stays
	// while the next attempt runs.
	LastError  string                       `json:"lastError,omitempty"`
	Reason     string                       `json:"reason,omitempty"`
	Error      string                       `json:"error,omitempty"`
	Progress   Progress                     `json:"progress"`
	CreatedAt  time.Time                    `json:"createdAt,omitzero"` // zero if only the history has it
	FinishedAt *time.Time                   `json:"finishedAt,omitempty"`
	Webhooks   []v1alpha1.WebhookCallStatus `json:"webhooks,omitempty"`
}

// Progress counts the webhooks of an operation.
type Progress struct {
	Completed int `json:"completed"`
	Total     int `json:"total"`
}

// Terminal reports whether the operation has ended.
func (v View) Terminal() bool { return v.Status != InProgress }

// ViewOf returns the view of an Operation. It ignores a status that describes an earlier request: until the executor
// picks up the present request, that one is in progress without any progress. The view shares memory with op.
func ViewOf(op *v1alpha1.Operation) View {
	v := View{
		OperationID:       op.EffectiveID(),
		OperationType:     op.Spec.OperationType,
		OperationCategory: op.Spec.OperationCategory,
		ResourceType:      op.Spec.ResourceType,
		ResourceID:        op.Spec.ResourceID,
		CorrelationID:     op.Spec.CorrelationID,
		RelatedResources:  op.Spec.RelatedResources,
		Status:            InProgress,
		Progress:          Progress{Total: len(op.Spec.WebhookIDs)},
		CreatedAt:         op.ScheduledAt().UTC(),
	}
	if !op.PickedUp() {
		return v
	}
	v.Webhooks = op.Status.Webhooks
	for _, w := range v.Webhooks {
		if w.State == v1alpha1.PhaseSuccess {
			v.Progress.Completed++
		}
	}
	switch op.Status.Phase {
	case v1alpha1.PhaseSuccess:
		v.Status = Succeeded
	case v1alpha1.PhaseFailed:
		v.Status = Failed
	default:
		v.Waiting, v.LastError = waiting(op), lastError(op)
		return v
	}
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); c != nil && v.Status == Failed {
		v.Reason, v.Error = c.Reason, c.Message
		if v.Error == "" {
			v.Error = c.Reason
		}
	}
	if op.Status.FinishedAt != nil {
		at := op.Status.FinishedAt.UTC()
		v.FinishedAt = &at
	}
	return v
}

// waiting returns the message of the Ready condition if its reason means that the operation waits.
func waiting(op *v1alpha1.Operation) string {
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return ""
	}
	switch c.Reason {
	case v1alpha1.ReasonWaitingForLock, v1alpha1.ReasonWaitingForWebhook, v1alpha1.ReasonNotReleased,
		v1alpha1.ReasonWaitingForShare,
		v1alpha1.ReasonOutdatedCRD:
		return c.Message
	}
	return ""
}

// lastError returns the last error of the first failed call that is due for another attempt.
func lastError(op *v1alpha1.Operation) string {
	calls := slices.Concat(op.Status.Webhooks, op.Status.Compensations)
	if op.Status.Notification != nil {
		calls = append(calls, *op.Status.Notification)
	}
	for i := range calls {
		if text := causes.LastError(&calls[i]); text != "" {
			return "webhook " + calls[i].WebhookID + ": " + text
		}
	}
	return ""
}

// ViewOfID returns the view of the operation with the given id: the present request of op, or an earlier one that its
// history or status records. It returns false if op does not record that id.
func ViewOfID(op *v1alpha1.Operation, id string) (View, bool) {
	if op.EffectiveID() == id {
		return ViewOf(op), true
	}
	if old := earlier(op, id); old != nil {
		return ViewOf(old), true
	}
	return View{}, false
}
