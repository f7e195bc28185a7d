// Package v1alpha1 has the kinds of web.example.com/v1alpha1.
//
// +kubebuilder:object:generate=true
// +groupName=web.example.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Site{}, &SiteList{},
		&Route{}, &RouteList{},
		//fairlead:new kinds
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
