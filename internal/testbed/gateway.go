// Package testbed is the test bed of packages alloc and reconcile: a custom kind, and a server with caches and
// clients.
package testbed

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
)

// GroupVersion is the API version of Gateway.
var GroupVersion = schema.GroupVersion{Group: "test.fairlead.io", Version: "v1"}

// Gateways is the resource of Gateway.
var Gateways = GroupVersion.WithResource("gateways")

// ConfigMaps is the resource of ConfigMap.
var ConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Gateway is a custom resource with a status.
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GatewaySpec   `json:"spec,omitempty"`
	Status            GatewayStatus `json:"status,omitempty"`
}

// GatewaySpec is the desired state of a Gateway.
type GatewaySpec struct {
	Size int    `json:"size,omitempty"`
	Ref  string `json:"ref,omitempty"`
}

// GatewayStatus is the observed state of a Gateway.
type GatewayStatus struct {
	Count      int                `json:"count,omitempty"`
	Seen       int64              `json:"seen,omitempty"`
	Note       map[string]string  `json:"note,omitempty"`
	Allocated  alloc.Slots        `json:"allocated,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Flow       *flow.Position     `json:"flow,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gateway) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	out.Status.Note = maps.Clone(g.Status.Note)
	out.Status.Allocated = g.Status.Allocated.DeepCopy()
	out.Status.Flow = g.Status.Flow.DeepCopy()
	out.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return &out
}

// GatewayList is a list of Gateways.
type GatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gateway `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *GatewayList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Gateway))
	}
	return &out
}

// New returns a Gateway.
func New(namespace, name string) *Gateway {
	return &Gateway{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Gateway"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       GatewaySpec{Size: 1},
	}
}

// Scheme returns a scheme with Gateway and the kinds of client-go.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	s.AddKnownTypes(GroupVersion, &Gateway{}, &GatewayList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return s
}

// Resources returns the default resources of the server and Gateways.
func Resources() []apiserver.Resource {
	return append(apiserver.DefaultResources(), apiserver.Resource{
		Group: GroupVersion.Group, Version: GroupVersion.Version, Resource: "gateways", Kind: "Gateway", Namespaced: true,
		Subresources: []string{"status"},
	})
}
