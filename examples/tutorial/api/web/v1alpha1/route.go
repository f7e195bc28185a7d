package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/flow"
)

// Route leads the requests for a host from the edge to a Site.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=routes
// +kubebuilder:printcolumn:name=Host,type=string,JSONPath=.spec.host
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=.status.url
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
type Route struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RouteSpec   `json:"spec"`
	Status RouteStatus `json:"status,omitempty"`
}

// RouteSpec is the desired state.
type RouteSpec struct {
	// Host is the name on the internet.
	//
	// +kubebuilder:validation:MinLength=1
	Host string `json:"host"`
}

// RouteStatus is the observed state.
type RouteStatus struct {
	// URL is set when the route is active.
	//
	// +optional
	URL string `json:"url,omitempty"`

	// Allocated has the address at the edge. Package alloc writes it.
	//
	// +optional
	Allocated alloc.Slots `json:"allocated,omitempty"`

	// Flow is the position in the flow.
	//
	// +optional
	Flow *flow.Position `json:"flow,omitempty"`
}

// RouteList is a list of objects.
//
// +kubebuilder:object:root=true
type RouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Route `json:"items"`
}
