package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookMode says how the receiver tells its result.
//
// +kubebuilder:validation:Enum=Sync;Async;AsyncCallback
type WebhookMode string

// The modes of a Webhook.
const (
	// ModeSync: the answer is the result.
	ModeSync WebhookMode = "Sync"

	// ModeAsync: the answer names a URL to poll.
	ModeAsync WebhookMode = "Async"

	// ModeAsyncCallback: the receiver calls back.
	ModeAsyncCallback WebhookMode = "AsyncCallback"
)

// Expression is a CEL expression over response.status, response.headers (lower-case names) and response.body (parsed
// JSON, or a string).
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=4096
type Expression = string

// Webhook is an HTTP endpoint that operations call, with how to ask it and how to judge its answers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=webhooks,singular=webhook,scope=Namespaced,shortName=wh,categories=fairlead
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.request.url`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Breaker",type=string,JSONPath=`.status.breaker.state`
// +kubebuilder:printcolumn:name="Open Until",type=string,JSONPath=`.status.breaker.until`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Webhook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the endpoint.
	// +required
	Spec WebhookSpec `json:"spec"`

	// status is what the executor knows of the endpoint.
	// +optional
	Status WebhookStatus `json:"status,omitzero"`
}

// WebhookList is a list of Webhooks.
//
// +kubebuilder:object:root=true
type WebhookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Webhook `json:"items"`
}

// WebhookSpec describes an endpoint.
type WebhookSpec struct {
	// mode is Sync, Async or AsyncCallback.
	// +optional
	// +kubebuilder:default=Sync
	Mode WebhookMode `json:"mode,omitempty"`

	// request is what is sent.
	// +required
	Request WebhookRequest `json:"request"`

	// requestTimeout of one try, up to 10m.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('10m')",message="must be a duration above zero of up to 10m, such as 30s"
	RequestTimeout metav1.Duration `json:"requestTimeout,omitzero"`

	// correlationHeader is the name of the header that carries the correlation id.
	// +optional
	// +kubebuilder:default="X-Correlation-ID"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	CorrelationHeader string `json:"correlationHeader,omitempty"`

	// response says how an answer is judged.
	// +optional
	Response WebhookResponse `json:"response,omitzero"`

	// poll says how the result of an Async webhook is asked for.
	// +optional
	// +kubebuilder:default={}
	Poll WebhookPoll `json:"poll,omitzero"`

	// retry says when a try is repeated.
	// +optional
	// +kubebuilder:default={}
	Retry WebhookRetry `json:"retry,omitzero"`

	// timeout of this webhook in one operation, over all tries, polls and waiting for the callback; up to 30 days.
	// +optional
	// +kubebuilder:default="2h0m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('720h')",message="must be a duration above zero of up to 720h, such as 2h"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// auth is how the caller proves who it is. Default: not at all.
	// +optional
	Auth *WebhookAuth `json:"auth,omitempty"`

	// signing adds a Standard Webhooks signature.
	// +optional
	Signing *WebhookSigning `json:"signing,omitempty"`

	// tls says which server is trusted. Default: the system's certificate authorities and the host of the URL.
	// +optional
	TLS *WebhookTLS `json:"tls,omitempty"`

	// concurrency is how many requests to this endpoint may be in flight. Default: no limit of its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Concurrency int32 `json:"concurrency,omitempty"`

	// ratePerSecond is how many requests to this endpoint may start in a second. Default: no limit of its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RatePerSecond int32 `json:"ratePerSecond,omitempty"`

	// breaker stops calls to an endpoint that keeps failing.
	// +optional
	// +kubebuilder:default={}
	Breaker WebhookBreaker `json:"breaker,omitzero"`
}

// WebhookRequest is what is sent. Its fields are templates (text/template; a missing key is an error) over .Resource,
// .TenantID, .Headers, .Operation (all spec fields under their JSON names), .CallbackURL, and for compensation and
// notification .Outcome (phase, reason, message).
type WebhookRequest struct {
	// method is a template of the HTTP method.
	// +optional
	// +kubebuilder:default=POST
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Method string `json:"method,omitempty"`

	// url is a template of the URL, http or https.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	URL string `json:"url"`

	// headers are templates of header values by header name.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && name.matches('^[A-Za-z0-9_-]+$'))",message="names must be letters, digits, dash and underscore, up to 128"
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(self[name]) <= 8192)",message="values must not be longer than 8192"
	Headers map[string]string `json:"headers,omitempty"`

	// body is a template of the body, sent as application/json unless headers say otherwise. Empty sends none.
	// +optional
	// +kubebuilder:default="{}"
	// +kubebuilder:validation:MaxLength=262144
	Body *string `json:"body,omitempty"`
}

// WebhookResponse says how an answer is judged.
type WebhookResponse struct {
	// success says that the call succeeded. Default: status 2xx.
	// +optional
	Success Expression `json:"success,omitempty"`

	// gone says that the resource does not exist there, which counts as success for Delete. Default: status 404 or 410.
	// +optional
	Gone Expression `json:"gone,omitempty"`

	// retry says that the call should be tried again. Default: no answer, or status 408, 425, 429 or 5xx.
	// +optional
	Retry Expression `json:"retry,omitempty"`

	// location gives the URL to poll, resolved against the URL of the request. Default: the Location header.
	// +optional
	Location Expression `json:"location,omitempty"`

	// error gives the message that is kept when the call failed.
	// +optional
	Error Expression `json:"error,omitempty"`
}

// WebhookPoll says how a result is asked for.
type WebhookPoll struct {
	// interval between two polls, at least 50ms; Retry-After of the answer wins.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('720h')",message="must be a duration from 50ms to 720h, such as 10s"
	Interval metav1.Duration `json:"interval,omitzero"`

	// succeeded says that the receiver has finished well. Default: response.body.status is SUCCEEDED, SUCCESS or DONE, in
	// any case.
	// +optional
	Succeeded Expression `json:"succeeded,omitempty"`

	// failed says that the receiver has failed. Default: response.body.status is FAILED or ERROR, in any case.
	// +optional
	Failed Expression `json:"failed,omitempty"`

	// error gives the message that is kept when the receiver has failed.
	// +optional
	Error Expression `json:"error,omitempty"`
}

// WebhookRetry says when a try is repeated: after an exponentially growing interval with full jitter, or after what
// Retry-After of the answer says.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initialInterval) || !has(self.maxInterval) || duration(self.initialInterval) <= duration(self.maxInterval)",message="initialInterval must not be above maxInterval"
type WebhookRetry struct {
	// maxAttempts is how many tries there are, the first one included; up to 100000.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// initialInterval is the bound of the wait after the first try. No wait is below 50ms.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('720h')",message="must be a duration from 50ms to 720h, such as 1s"
	InitialInterval metav1.Duration `json:"initialInterval,omitzero"`

	// maxInterval is the bound of every wait.
	// +optional
	// +kubebuilder:default="5m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('720h')",message="must be a duration from 50ms to 720h, such as 5m"
	MaxInterval metav1.Duration `json:"maxInterval,omitzero"`
}

// WebhookBreaker stops calls to an endpoint that keeps failing.
type WebhookBreaker struct {
	// failures in a row that open the breaker.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	Failures int32 `json:"failures,omitempty"`

	// openFor is how long it stays open before one call may try again.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('720h')",message="must be a duration above zero of up to 720h, such as 30s"
	OpenFor metav1.Duration `json:"openFor,omitzero"`
}
