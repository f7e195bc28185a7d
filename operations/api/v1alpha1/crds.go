package v1alpha1

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// CRDYAML returns the definitions of the resources of this package as a stream of YAML documents, ready for kubectl
// apply.
func CRDYAML() []byte {
	var out []byte
	for _, name := range crdNames() {
		out = append(out, crdFile(name)...)
	}
	return out
}

// CRDs returns the definitions of the resources of this package, Operation first. The caller owns them.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, name := range crdNames() {
		crd := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(crdFile(name), crd); err != nil {
			// The file was generated and is part of this program; a test reads every one of them.
			panic(fmt.Sprintf("cannot read embedded %s: %v", name, err))
		}
		out = append(out, crd)
	}
	return out
}

func crdNames() []string {
	names, err := fs.Glob(crdFiles, "crds/*.yaml")
	if err != nil {
		panic(fmt.Sprintf("cannot list embedded files: %v", err)) // only for a malformed pattern
	}
	return names
}

func crdFile(name string) []byte {
	data, err := crdFiles.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("cannot read embedded %s: %v", name, err)) // its name came from the same file system
	}
	return data
}
