package operations

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
)

// Status is the state of an operation in the words of the HTTP API.
type Status string

// The states of an operation.
const (
	InProgress Status = "IN_PROGRESS"
	Succeeded  Status = "SUCCEEDED"
	Failed     Status = "FAILED"
)

// View is an operation as the HTTP API and the command line show it.
type View struct {
	OperationID       string                     `json:"operationID"`
	OperationType     v1alpha1.OperationType     `json:"operationType"`
	OperationCategory string                     `json:"operationCategory,omitempty"`
	ResourceType      string                     `json:"resourceType"`
	ResourceID        string                     `json:"resourceID"`
	CorrelationID     string                     `json:"correlationID,omitempty"`
	RelatedResources  []v1alpha1.RelatedResource `json:"relatedResources,omitempty"`
	Status            Status                     `json:"status"`
	// for what no call is made: an operation that excludes this one by a lock, a Webhook that does not exist, credentials
	// that are not released, a CustomResourceDefinition that is too old
	Waiting string `json:"waiting,omitempty"`
	// of the last try or poll of a call that has not ended, also while the next one is under way, after the name of its
	// Webhook
	LastError  string                       `json:"lastError,omitempty"`
	Reason     string                       `json:"reason,omitempty"`
	Error      string                       `json:"error,omitempty"`
	Progress   Progress                     `json:"progress"`
	CreatedAt  time.Time                    `json:"createdAt,omitzero"` // not known of one that others have followed
	FinishedAt *time.Time                   `json:"finishedAt,omitempty"`
	Webhooks   []v1alpha1.WebhookCallStatus `json:"webhooks,omitempty"`
}

// Progress counts the webhooks of an operation.
type Progress struct {
	Completed int `json:"completed"`
	Total     int `json:"total"`
}

// Terminal tells whether the operation has ended.
func (v View) Terminal() bool { return v.Status != InProgress }

// ViewOf returns the view of an Operation. A status that is about an earlier request is not shown: until the executor
// has picked the present one up, it is in progress and nothing has been done. The view shares memory with op.
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

// waiting returns what the conditions of an operation in progress say that it waits for.
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

// lastError returns the error of the last try of the first call that has failed and is to be made again.
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

// ViewOfID returns the view of the operation with that id, from what an Operation tells of it: its present request, or
// one before that has ended. It reports false where the Operation tells nothing of that id.
func ViewOfID(op *v1alpha1.Operation, id string) (View, bool) {
	if op.EffectiveID() == id {
		return ViewOf(op), true
	}
	if old := earlier(op, id); old != nil {
		return ViewOf(old), true
	}
	return View{}, false
}
