// Package api has the kinds of this project. Each group and version has a package below it.
package api

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	webv1 "example.com/sites/api/web/v1"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
	//fairlead:new imports
)

// Scheme returns the Go types of Kubernetes and of this project.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(
		scheme.AddToScheme(s),
		webv1alpha1.AddToScheme(s),
		webv1.AddToScheme(s),
		//fairlead:new groups
	)
}
