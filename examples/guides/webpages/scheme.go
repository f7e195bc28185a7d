package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/fairlead-io/fairlead/examples/guides/webpages/v1"
	v2 "github.com/fairlead-io/fairlead/examples/guides/webpages/v2"
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for version, object := range map[string]runtime.Object{"v1": &v1.WebPage{}, "v2": &v2.WebPage{}} {
		group := schema.GroupVersion{Group: "example.com", Version: version}
		s.AddKnownTypes(group, object)
		metav1.AddToGroupVersion(s, group)
	}
	return s
}
