package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// WebPage is one page on a web server.
type WebPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebPageSpec   `json:"spec"`
	Status            WebPageStatus `json:"status,omitempty"`
}

// WebPageSpec is the desired state of a WebPage.
type WebPageSpec struct {
	HTML    string `json:"html"`
	Exposed bool   `json:"exposed,omitempty"` // reachable from outside the cluster
}

// WebPageStatus is the observed state of a WebPage.
type WebPageStatus struct {
	URL        string             `json:"url,omitempty"` // set while the page is exposed
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *WebPage) DeepCopyObject() runtime.Object {
	out := &WebPage{TypeMeta: p.TypeMeta, Spec: p.Spec, Status: p.Status}
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), p.Status.Conditions...)
	return out
}

var kind = schema.GroupVersionKind{Group: "example.fairlead.io", Version: "v1", Kind: "WebPage"}

// newScheme returns the scheme of the operator.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &WebPage{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())
	return s, scheme.AddToScheme(s)
}
