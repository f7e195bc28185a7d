package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BreakerState is the state of a circuit breaker.
//
// +kubebuilder:validation:Enum=Closed;Open;HalfOpen
type BreakerState string

// The states of a breaker.
const (
	// BreakerClosed: calls go out.
	BreakerClosed BreakerState = "Closed"

	// BreakerOpen: no call goes out before until.
	BreakerOpen BreakerState = "Open"

	// BreakerHalfOpen: one call goes out to find out whether the endpoint has recovered.
	BreakerHalfOpen BreakerState = "HalfOpen"
)

// ConditionValid of a Webhook is False when a template or expression of it cannot be compiled, with reason
// [ReasonInvalid], or when credentials that it names are not released, with reason [ReasonNotReleased], and True with
// reason [ReasonCompiled] otherwise.
const ConditionValid = "Valid"

// ReasonCompiled is the reason of condition Valid when it is True.
const ReasonCompiled = "Compiled"

// ConditionQuarantined of a Webhook is True when its templates or expressions have killed the controller, with reason
// [ReasonCrashed]. It is not used until it is changed.
const ConditionQuarantined = "Quarantined"

// ReasonCrashed is the reason of condition Quarantined.
const ReasonCrashed = "Crashed"

// WebhookStatus is what the executor knows of an endpoint.
type WebhookStatus struct {
	// conditions: Valid says whether all templates and expressions can be compiled, Quarantined that they have killed the
	// controller.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// breaker is the state of the circuit breaker.
	// +optional
	Breaker *BreakerStatus `json:"breaker,omitempty"`

	// observedGeneration is the metadata.generation that the executor has seen.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// BreakerStatus is the state of a circuit breaker.
type BreakerStatus struct {
	// state is Closed, Open or HalfOpen.
	// +required
	State BreakerState `json:"state"`

	// until is when an open breaker lets a call try again.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
}
