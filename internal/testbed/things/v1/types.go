// Package v1 is an example of a user's API, generated with controller-gen. Its kind has a field of every library type
// that users may put in their own kinds.
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=things.fairlead.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/flow"
)

// SchemeGroupVersion is the group and version of the kind.
var SchemeGroupVersion = schema.GroupVersion{Group: "things.fairlead.io", Version: "v1"}

// Thing is something that is worked on.
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +optional
	Spec ThingSpec `json:"spec,omitzero"`
	// +optional
	Status ThingStatus `json:"status,omitzero"`
}

// ThingSpec is what is wanted of it.
type ThingSpec struct {
	// size is how large it is to be.
	// +kubebuilder:default=3
	// +optional
	Size int32 `json:"size,omitempty"`
	// colour is what others decide.
	// +optional
	Colour string `json:"colour,omitempty"`
}

// ThingStatus is what is known of it.
type ThingStatus struct {
	// flow is where its fiber is.
	// +optional
	Flow *flow.Position `json:"flow,omitempty"`
	// history has positions by value.
	// +optional
	History []flow.Position `json:"history,omitempty"`
	// slots are what is allocated for it.
	// +optional
	Slots alloc.Slots `json:"slots,omitempty"`
	// slot is a single one.
	// +optional
	Slot *alloc.Slot `json:"slot,omitempty"`
	// conditions say how it is.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ThingList is a list of them.
// +kubebuilder:object:root=true
type ThingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Thing `json:"items"`
}

// Scheme returns a scheme with the kind and those of client-go.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(SchemeGroupVersion, &Thing{}, &ThingList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return s, scheme.AddToScheme(s)
}
