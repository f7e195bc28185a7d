package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// widget is the Go type of the custom resource of the corpus, as an operator's author would write it.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              widgetSpec   `json:"spec"`
	Status            widgetStatus `json:"status"`
}

type widgetSpec struct {
	Color     string           `json:"color"`
	Size      int              `json:"size"`
	Replicas  int              `json:"replicas"`
	Endpoints []widgetEndpoint `json:"endpoints,omitempty"`
	Template  widgetTemplate   `json:"template"`
}

type widgetEndpoint struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
	TLS  bool   `json:"tls"`
}

type widgetTemplate struct {
	Image string   `json:"image"`
	Args  []string `json:"args,omitempty"`
}

type widgetStatus struct {
	Phase      string             `json:"phase"`
	Ready      int                `json:"ready"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The methods that controller-gen would generate.

func (w *widget) DeepCopyObject() runtime.Object { return w.deepCopy() }

func (w *widget) deepCopy() *widget {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Endpoints = append([]widgetEndpoint(nil), w.Spec.Endpoints...)
	out.Spec.Template.Args = append([]string(nil), w.Spec.Template.Args...)
	out.Status.Conditions = nil
	for i := range w.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *w.Status.Conditions[i].DeepCopy())
	}
	return &out
}

type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []widget `json:"items"`
}

func (l *widgetList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].deepCopy())
	}
	return &out
}
