package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DepotReady is the condition of a Depot whose replicas are available with the present inventory.
const DepotReady = "Ready"

// DepotSpec is what is wanted.
type DepotSpec struct {
	// Replicas is the number of pods that serve the inventory.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`
	// Image is what their only container runs.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Inventory is the name of a ConfigMap in the same namespace. A change of its data replaces the pods.
	// +kubebuilder:validation:MinLength=1
	Inventory string `json:"inventory"`
}

// DepotStatus is what there is.
type DepotStatus struct {
	// Available is the number of pods that serve.
	Available int32 `json:"available"`
	// Conditions has the condition Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Depot serves an inventory to squads. It is listed in the namespace depots.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Depot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DepotSpec   `json:"spec,omitempty"`
	Status DepotStatus `json:"status,omitempty"`
}

// DepotList is a list of depots.
//
// +kubebuilder:object:root=true
type DepotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Depot `json:"items"`
}
