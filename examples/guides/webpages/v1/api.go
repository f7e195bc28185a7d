// Package v1 has the first version of WebPage.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WebPage is a web page.
type WebPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebPageSpec `json:"spec"`
}

// WebPageSpec is the desired state of a WebPage.
type WebPageSpec struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// DeepCopyObject implements runtime.Object.
func (p *WebPage) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
