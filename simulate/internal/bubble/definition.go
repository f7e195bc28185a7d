package bubble

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// resources returns the resources that the CustomResourceDefinitions in a manifest define, one for each served version.
func resources(manifest []byte) ([]apiserver.Resource, error) {
	var out []apiserver.Resource
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := d.Decode(&crd); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot decode a CustomResourceDefinition: %w", err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				out = append(out, apiserver.Resource{
					Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural, Kind: crd.Spec.Names.Kind,
					Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, Singular: crd.Spec.Names.Singular,
					ShortNames: crd.Spec.Names.ShortNames,
				})
			}
		}
	}
}
