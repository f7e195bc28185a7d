package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Site is a program in the cluster, with configuration files,
// and a Service if it has a port.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sites
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 58 && !self.metadata.name.contains('.')",message="name has to be at most 58 letters, digits, hyphens"
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].reason
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SiteSpec   `json:"spec"`
	Status SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the desired state.
// Replace the fields by those of your kind.
type SiteSpec struct {
	// Image is the container image.
	//
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// Replicas is the number of pods.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Files has the files in /etc/config by their names.
	//
	// +optional
	Files map[string]string `json:"files,omitempty"`

	// Port is the port of the Service, if there is one.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`

	// Host is the name of the site on the internet, if it has one.
	//
	// +optional
	Host string `json:"host,omitempty"`
}

// SiteStatus is the state
// that the controller has observed.
type SiteStatus struct {
	// Conditions has the condition Ready and its causes.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is a list of them.
//
// +kubebuilder:object:root=true
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}
