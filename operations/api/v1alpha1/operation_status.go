package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is how far an operation, or one call of it, has come.
//
// +kubebuilder:validation:Enum="In Progress";Success;Failed
type Phase string

// The phases. An Operation that was never picked up has none.
const (
	PhaseInProgress Phase = "In Progress"
	PhaseSuccess    Phase = "Success"
	PhaseFailed     Phase = "Failed"
)

// Terminal reports whether p is an outcome, Success or Failed.
func (p Phase) Terminal() bool { return p == PhaseSuccess || p == PhaseFailed }

// Types of the conditions of an Operation.
const (
	// ConditionReady is True once the operation has succeeded.
	ConditionReady = "Ready"

	// ConditionError is True once the operation has failed; its reason says why.
	ConditionError = "Error"
)

// Reasons of condition Error when it is True.
const (
	// ReasonWebhookFailed: a webhook was judged failed, or its CEL expression failed on this answer.
	ReasonWebhookFailed = "WebhookFailed"

	// ReasonRetriesExhausted: the last of the tries that the Webhook allows has failed too.
	ReasonRetriesExhausted = "RetriesExhausted"

	// ReasonTimedOut: the timeout of the operation or of a webhook has passed.
	ReasonTimedOut = "TimedOut"

	// ReasonCanceled: cancellation was asked for, or the Operation was deleted.
	ReasonCanceled = "Canceled"

	// ReasonInvalid: a template or expression cannot be compiled or rendered, or a field is bad.
	ReasonInvalid = "Invalid"

	// ReasonWebhookNotFound: a Webhook was still missing at the deadline.
	ReasonWebhookNotFound = "WebhookNotFound"

	// ReasonTooLarge: the Operation has become too large for the API server to store what has to be recorded.
	ReasonTooLarge = "TooLarge"

	// ReasonTargetRefused: the address of the endpoint is not an allowed target.
	ReasonTargetRefused = "TargetRefused"
)

// Reasons of the conditions of an Operation that has not failed. On failure, Ready has the reason of Error.
const (
	ReasonInProgress = "InProgress"

	// ReasonWaitingForLock: an operation that was accepted before has to end first, since both have a resource that one of
	// them locks; the message names it.
	ReasonWaitingForLock = "WaitingForLock"

	// ReasonWaitingForWebhook: a Webhook that is due does not exist; the message names it.
	ReasonWaitingForWebhook = "WaitingForWebhook"

	// ReasonNotReleased: a Webhook that is due names a Secret without the label [LabelWebhookCredentials], or a service
	// account whose annotation [AnnotationWebhookAudiences] does not name the audience; the message says which. It is that
	// of condition Valid of the Webhook, too.
	ReasonNotReleased = "NotReleased"

	// ReasonOutdatedCRD: the CustomResourceDefinition of operations is older than the executor, so that the API server
	// does not keep what has to be recorded before a call; the message names it.
	ReasonOutdatedCRD = "OutdatedCRD"

	// ReasonWaitingForShare: the namespace has used up its share of calls under way, of calls per second, or of writes to
	// the API server; the message says which. It goes on when it is the operation's turn.
	ReasonWaitingForShare = "WaitingForShare"

	ReasonSucceeded = "Succeeded"
)

// MaxHistory is how many finished operations status.history keeps, the newest first.
const MaxHistory = 10

// OperationStatus is what has become of a request.
type OperationStatus struct {
	// phase is In Progress, Success or Failed; empty before the executor has written a status. The first webhook may be
	// called before that.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// conditions are Ready (True on success) and Error (True on failure).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// operationID of the operation that this status is about. Where it differs from that of spec, the new request has not
	// been picked up yet.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	OperationID string `json:"operationID,omitempty"`

	// operationType of the operation that this status is about.
	// +optional
	OperationType OperationType `json:"operationType,omitempty"`

	// webhooks has one entry for each of spec.webhookIDs that was started, in their order.
	// +optional
	// +listType=map
	// +listMapKey=webhookID
	Webhooks []WebhookCallStatus `json:"webhooks,omitempty"`

	// compensations has one entry for each of spec.compensateWebhookIDs that was started, in their order.
	// +optional
	// +listType=map
	// +listMapKey=webhookID
	Compensations []WebhookCallStatus `json:"compensations,omitempty"`

	// notification is the call of spec.notifyWebhookID.
	// +optional
	Notification *WebhookCallStatus `json:"notification,omitempty"`

	// acceptedVersion is the metadata.resourceVersion at which the request was accepted, or for an operation that locks,
	// compensates or is Parallel at which the executor picked it up: the place of the operation among those that exclude
	// each other by locks.
	// +optional
	AcceptedVersion string `json:"acceptedVersion,omitempty"`

	// initializedAt is when the executor picked the operation up.
	// +optional
	InitializedAt *metav1.MicroTime `json:"initializedAt,omitempty"`

	// finishedAt is when the operation ended.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`

	// observedGeneration is the metadata.generation that the executor has seen.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// traceParent is the span in which this status was written, in the form of the traceparent of W3C Trace Context,
	// where the executor makes spans and that one was sampled. An executor that takes over links to it.
	// +optional
	TraceParent string `json:"traceParent,omitempty"`

	// history is the last finished operations of this resource before the present one, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []FinishedOperation `json:"history,omitempty"`
}

// WebhookCallStatus is how far the call of one webhook has come.
type WebhookCallStatus struct {
	// webhookID is the name of the Webhook.
	// +required
	WebhookID string `json:"webhookID"`

	// state is In Progress, Success or Failed.
	// +required
	State Phase `json:"state"`

	// retriesCount is the number of tries after the first one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetriesCount int32 `json:"retriesCount,omitempty"`

	// webhookPollURL is where the receiver said that the result is to be asked for.
	// +optional
	WebhookPollURL string `json:"webhookPollURL,omitempty"`

	// lastPollTimestamp is when it was last asked for.
	// +optional
	LastPollTimestamp *metav1.MicroTime `json:"lastPollTimestamp,omitempty"`

	// attemptID is the id of the present or last try. It is stored before the call is made, or that of a first try is
	// derived from the object, so after a crash the same try is repeated. Tries that follow the stored one soon
	// repeat it.
	// +optional
	AttemptID string `json:"attemptID,omitempty"`

	// idempotencyKey is sent with every try: <namespace>.<operationID>.<webhookID>, with .compensate or .notify added for
	// those calls. It is stored with the attempt.
	// +optional
	IdempotencyKey string `json:"idempotencyKey,omitempty"`

	// webhookGeneration is the metadata.generation of the Webhook with which the present or last try is made. A poll of
	// webhookPollURL uses the newest one, and leaves this as it is.
	// +optional
	WebhookGeneration int64 `json:"webhookGeneration,omitempty"`

	// startedAt is when the first try began.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`

	// finishedAt is when state became Success or Failed.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`

	// nextAttemptAt is when the next try or poll is due.
	// +optional
	NextAttemptAt *metav1.MicroTime `json:"nextAttemptAt,omitempty"`

	// retryAfter is true when nextAttemptAt is the time that the receiver itself has asked for, by Retry-After.
	// +optional
	RetryAfter bool `json:"retryAfter,omitempty"`

	// lastStatusCode is the HTTP status of the last answer; absent when there was none.
	// +optional
	LastStatusCode int32 `json:"lastStatusCode,omitempty"`

	// message says in words what happened last. The error of a try stays while the next one is under way, beginning with
	// the status that was answered.
	// +optional
	Message string `json:"message,omitempty"`
}

// FinishedOperation is one entry of the history.
type FinishedOperation struct {
	// operationID of the operation.
	// +required
	OperationID string `json:"operationID"`

	// operationType of the operation.
	// +required
	OperationType OperationType `json:"operationType"`

	// phase is its outcome.
	// +required
	Phase Phase `json:"phase"`

	// reason is that of condition Error when it failed.
	// +optional
	Reason string `json:"reason,omitempty"`

	// finishedAt is when it ended.
	// +required
	FinishedAt metav1.MicroTime `json:"finishedAt"`
}
