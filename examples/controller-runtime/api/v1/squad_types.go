// Package v1 is the API of the example. A Squad is a number of pods with the same image and without stable names. A
// Depot is a Deployment that serves the data of a ConfigMap.
//
// +kubebuilder:object:generate=true
// +groupName=squads.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "squads.example.com", Version: "v1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Squad{}, &SquadList{}, &Depot{}, &DepotList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// SquadSpec is what is wanted.
type SquadSpec struct {
	// Size is the number of pods.
	// +kubebuilder:validation:Minimum=0
	Size int32 `json:"size"`
	// Image is what their only container runs.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
}

// SquadStatus is what there is.
type SquadStatus struct {
	// ObservedGeneration is the generation that the other fields are about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Members is the number of pods.
	Members int32 `json:"members"`
}

// Squad is a number of pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Squad struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SquadSpec   `json:"spec,omitempty"`
	Status SquadStatus `json:"status,omitempty"`
}

// SquadList is a list of squads.
//
// +kubebuilder:object:root=true
type SquadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Squad `json:"items"`
}
