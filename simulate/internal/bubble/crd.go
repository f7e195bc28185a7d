package bubble

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// resources returns the resources that a CustomResourceDefinition defines, one for each version.
func resources(obj *unstructured.Unstructured) ([]apiserver.Resource, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &crd); err != nil {
		return nil, fmt.Errorf("cannot read the CustomResourceDefinition %s: %w", obj.GetName(), err)
	}
	var out []apiserver.Resource
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		r := apiserver.Resource{
			Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural, Kind: crd.Spec.Names.Kind,
			Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, Singular: crd.Spec.Names.Singular,
			ShortNames: crd.Spec.Names.ShortNames,
		}
		if v.Subresources != nil && v.Subresources.Status != nil {
			r.Subresources = []string{"status"}
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the CustomResourceDefinition %s serves no version", obj.GetName())
	}
	return out, nil
}
