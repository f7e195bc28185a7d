package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OperationType says what is done to the resource.
//
// +kubebuilder:validation:Enum=Create;Update;Delete
type OperationType string

// The types of operations.
const (
	OperationCreate OperationType = "Create"
	OperationUpdate OperationType = "Update"
	OperationDelete OperationType = "Delete"
)

// ExecutionMode says how the webhooks of an operation follow each other.
//
// +kubebuilder:validation:Enum=Sequential;Parallel
type ExecutionMode string

// The modes of execution.
const (
	// ExecutionSequential calls each webhook after the one before it succeeded.
	ExecutionSequential ExecutionMode = "Sequential"

	// ExecutionParallel calls all webhooks at once.
	ExecutionParallel ExecutionMode = "Parallel"
)

// WebhookID is the name of a Webhook in the namespace of the Operation. The endings that idempotency keys use are
// refused, so that the compensation of one webhook never shares its key with a call of another.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
// +kubebuilder:validation:XValidation:rule="!self.endsWith('.compensate') && !self.endsWith('.notify')",message="must not end in .compensate or .notify, which are reserved for idempotency keys"
type WebhookID = string

// The API server evaluates the rules of an Operation for every write of its status, too. For each field that a rule
// reads, it copies the properties of the schema around that field. This once took as long as the rest of the write. So
// the first comparison of the longest rule decides for every write that leaves the spec alone.

// Operation is one long-running request on a resource of an API service, and what has become of it. There is at most
// one Operation per resource, so its name is [OperationName] of the resource; a later request replaces the spec of an
// ended one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=operations,singular=operation,scope=Namespaced,shortName=op,categories=fairlead
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.operationType`
// +kubebuilder:printcolumn:name="Category",type=string,JSONPath=`.spec.operationCategory`
// +kubebuilder:printcolumn:name="Resource Type",type=string,JSONPath=`.spec.resourceType`
// +kubebuilder:printcolumn:name="Resource ID",type=string,JSONPath=`.spec.resourceID`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Error")].reason`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.initializedAt`,priority=1
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finishedAt`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Error")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.operationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.operationType`
// +kubebuilder:selectablefield:JSONPath=`.spec.operationCategory`
// +kubebuilder:selectablefield:JSONPath=`.spec.resourceType`
// +kubebuilder:selectablefield:JSONPath=`.spec.resourceID`
// +kubebuilder:selectablefield:JSONPath=`.spec.correlationID`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
//
// The request may be replaced only once its own operation has ended. An empty spec.operationID stands for metadata.uid,
// which rules cannot read and no later request can have, so a terminal phase is then enough. Durations and empty lists
// are compared by value, so that writing back what was read is no change, in whatever form a client spells "2h" or
// nothing.
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec || (self.spec.resourceType == oldSelf.spec.resourceType && self.spec.resourceID == oldSelf.spec.resourceID && (!has(oldSelf.spec.operationID) || has(self.spec.operationID)) && ((has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Success', 'Failed'] && (!has(oldSelf.spec.operationID) || (has(oldSelf.status.operationID) && oldSelf.status.operationID == oldSelf.spec.operationID))) || (self.spec.operationType == oldSelf.spec.operationType && has(self.spec.operationID) == has(oldSelf.spec.operationID) && (!has(self.spec.operationID) || self.spec.operationID == oldSelf.spec.operationID) && (has(self.spec.operationCategory) && has(oldSelf.spec.operationCategory) ? self.spec.operationCategory == oldSelf.spec.operationCategory : (!has(self.spec.operationCategory) || size(self.spec.operationCategory) == 0) && (!has(oldSelf.spec.operationCategory) || size(oldSelf.spec.operationCategory) == 0)) && (has(self.spec.correlationID) && has(oldSelf.spec.correlationID) ? self.spec.correlationID == oldSelf.spec.correlationID : (!has(self.spec.correlationID) || size(self.spec.correlationID) == 0) && (!has(oldSelf.spec.correlationID) || size(oldSelf.spec.correlationID) == 0)) && (has(self.spec.webhookIDs) && has(oldSelf.spec.webhookIDs) ? self.spec.webhookIDs == oldSelf.spec.webhookIDs : (!has(self.spec.webhookIDs) || size(self.spec.webhookIDs) == 0) && (!has(oldSelf.spec.webhookIDs) || size(oldSelf.spec.webhookIDs) == 0)) && (has(self.spec.relatedResources) && has(oldSelf.spec.relatedResources) ? self.spec.relatedResources == oldSelf.spec.relatedResources : (!has(self.spec.relatedResources) || size(self.spec.relatedResources) == 0) && (!has(oldSelf.spec.relatedResources) || size(oldSelf.spec.relatedResources) == 0)) && (has(self.spec.requestObject) ? has(oldSelf.spec.requestObject) && self.spec.requestObject == oldSelf.spec.requestObject : !has(oldSelf.spec.requestObject) || (has(self.spec.cancelRequested) && self.spec.cancelRequested)) && has(self.spec.execution) == has(oldSelf.spec.execution) && (!has(self.spec.execution) || self.spec.execution == oldSelf.spec.execution) && has(self.spec.timeout) == has(oldSelf.spec.timeout) && (!has(self.spec.timeout) || duration(self.spec.timeout) == duration(oldSelf.spec.timeout)) && has(self.spec.notifyWebhookID) == has(oldSelf.spec.notifyWebhookID) && (!has(self.spec.notifyWebhookID) || self.spec.notifyWebhookID == oldSelf.spec.notifyWebhookID) && (has(self.spec.compensateWebhookIDs) && has(oldSelf.spec.compensateWebhookIDs) ? self.spec.compensateWebhookIDs == oldSelf.spec.compensateWebhookIDs : (!has(self.spec.compensateWebhookIDs) || size(self.spec.compensateWebhookIDs) == 0) && (!has(oldSelf.spec.compensateWebhookIDs) || size(oldSelf.spec.compensateWebhookIDs) == 0)) && has(self.spec.ttlAfterFinished) == has(oldSelf.spec.ttlAfterFinished) && (!has(self.spec.ttlAfterFinished) || duration(self.spec.ttlAfterFinished) == duration(oldSelf.spec.ttlAfterFinished)) && (has(self.spec.cancelRequested) && self.spec.cancelRequested || !has(oldSelf.spec.cancelRequested) || !oldSelf.spec.cancelRequested))))",messageExpression="self.spec.resourceType != oldSelf.spec.resourceType || self.spec.resourceID != oldSelf.spec.resourceID ? 'resourceType and resourceID cannot change: an Operation is about one resource' : has(oldSelf.spec.operationID) && !has(self.spec.operationID) ? 'operationID cannot be removed; a new request needs a new one' : 'spec cannot change until the operation that it asks for has ended; only cancelRequested may become true, and then requestObject may be removed'",reason=FieldValueForbidden,fieldPath=".spec"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Success', 'Failed']) || (has(self.status) && has(self.status.phase) && (self.status.phase == oldSelf.status.phase || has(self.status.operationID) != has(oldSelf.status.operationID) || (has(self.status.operationID) && self.status.operationID != oldSelf.status.operationID)))",message="an operation has one outcome: phase cannot change again for the same operationID",reason=FieldValueForbidden,fieldPath=".status"
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request.
	// +required
	Spec OperationSpec `json:"spec"`

	// status is what has become of the request; the executor writes it.
	// +optional
	Status OperationStatus `json:"status,omitzero"`
}

// OperationList is a list of Operations.
//
// +kubebuilder:object:root=true
type OperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Operation `json:"items"`
}

// OperationSpec is a request. It can be replaced only when its operation has ended, and only a new operationID starts
// one again.
type OperationSpec struct {
	// operationID is the unique id of this request. Empty stands for metadata.uid. It is sent to the receivers as part of
	// the idempotency key, so it is visible ASCII, without a dot.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[!--/-~]+$`
	OperationID string `json:"operationID,omitempty"`

	// operationType is what is done to the resource: Create, Update or Delete.
	// +required
	OperationType OperationType `json:"operationType"`

	// operationCategory groups operations of one kind, e.g. registerApplication.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	OperationCategory string `json:"operationCategory,omitempty"`

	ResourceReference `json:",inline"`

	// correlationID is stored and sent with every outbound call. Printable ASCII.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	CorrelationID string `json:"correlationID,omitempty"`

	// webhookIDs are names of Webhooks of the same namespace, in order and each once. Without any, the operation succeeds
	// at once.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(x, self.exists_one(y, x == y))",message="must name each webhook once"
	WebhookIDs []WebhookID `json:"webhookIDs,omitempty"`

	// relatedResources are other resources that the operation touches; operations can be searched by them. Those with lock
	// are the operation's own until its end.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	RelatedResources []RelatedResource `json:"relatedResources,omitempty"`

	// requestObject is what the templates of the webhooks see of the request. Up to 256 KiB in all
	// ([MaxRequestObjectBytes]).
	// +optional
	RequestObject *RequestObject `json:"requestObject,omitempty"`

	// execution is Sequential or Parallel.
	// +optional
	// +kubebuilder:default=Sequential
	Execution ExecutionMode `json:"execution,omitempty"`

	// timeout of the whole operation, counted from when it was scheduled.
	// +optional
	// +kubebuilder:default="2h0m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('720h')",message="must be a duration above zero of up to 720h, such as 30s or 2h"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// notifyWebhookID names a Webhook that is called with the outcome once it is decided. Its failure never changes the
	// outcome.
	// +optional
	NotifyWebhookID WebhookID `json:"notifyWebhookID,omitempty"`

	// compensateWebhookIDs name Webhooks that are called, in order, when the operation fails after at least one webhook
	// succeeded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(x, self.exists_one(y, x == y))",message="must name each webhook once"
	CompensateWebhookIDs []WebhookID `json:"compensateWebhookIDs,omitempty"`

	// cancelRequested asks for cancellation: no new call starts, the call in flight is cancelled, compensation runs.
	// +optional
	CancelRequested bool `json:"cancelRequested,omitempty"`

	// ttlAfterFinished is how long after its end the Operation is deleted; zero is at once. Default: it is kept.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration, such as 0s or 24h"
	TTLAfterFinished *metav1.Duration `json:"ttlAfterFinished,omitempty"`
}

// ResourceReference names a resource of the API service. Both parts are free text.
type ResourceReference struct {
	// resourceType is the kind of the resource, e.g. Application.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ResourceType string `json:"resourceType"`

	// resourceID is unique among the resources of its type.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ResourceID string `json:"resourceID"`
}

// RelatedResource is a resource that an operation touches besides its own.
type RelatedResource struct {
	ResourceReference `json:",inline"`

	// lock keeps other operations away from the resource: of two unfinished operations of a namespace, where one locks
	// what the other one locks or is about, only the one that was accepted first calls webhooks. The other one waits, with
	// reason WaitingForLock, for its turn or its own timeout.
	// +optional
	Lock bool `json:"lock,omitempty"`
}

// RequestObject is the part of the request that templates see as .Resource, .TenantID and .Headers.
type RequestObject struct {
	// resource is any JSON value, as the API service had it when it accepted the request.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Resource *apiextensionsv1.JSON `json:"resource,omitempty"`

	// tenantID is on whose behalf the request runs. Tenants share the controller fairly.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TenantID string `json:"tenantID,omitempty"`

	// headers of the request, those that the API service allows by name. Headers that carry credentials are refused
	// whatever their spelling.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && name.matches('^[A-Za-z0-9_-]+$'))",message="names must be letters, digits, dash and underscore, up to 128"
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(self[name]) <= 4096)",message="values must not be longer than 4096"
	// +kubebuilder:validation:XValidation:rule="!self.exists(name, size(name) <= 128 && name.matches('^(?i)(authentication|proxy[-_].*|.*cookie2?|(.*[-_])?(authorization|(api|access|auth|private|secret)[-_]?key|(access|auth|id)[-_]?token|auth|token|secret|password|credentials?)|x[-_]forwarded[-_]client[-_]cert|www[-_]authenticate)$'))",message="must not carry credentials such as Authorization or Cookie"
	Headers map[string]string `json:"headers,omitempty"`
}
