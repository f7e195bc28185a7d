package admission_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// oldPage is version v1alpha1 of a resource: its address is one text.
type oldPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Address string `json:"address"`
	} `json:"spec"`
}

// page is version v1 of it, where host and port are apart.
type page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Host string `json:"host"`
		Port string `json:"port,omitempty"`
		TLS  bool   `json:"tls,omitempty"` // what v1alpha1 cannot say
	} `json:"spec"`
}

// midPage is version v1beta1, which knows the host alone.
type midPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		HostName string `json:"hostName"`
	} `json:"spec"`
}

func (p *oldPage) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *page) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *midPage) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// pages returns a scheme that knows the versions in a group of the test's own, and their definition.
func pages(t *testing.T, group string) (*runtime.Scheme, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	scheme := runtime.NewScheme()
	add := func(version string, obj runtime.Object) {
		gv := schema.GroupVersion{Group: group, Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind("Page"), obj)
		metav1.AddToGroupVersion(scheme, gv)
	}
	add("v1alpha1", &oldPage{})
	add("v1beta1", &midPage{})
	add("v1", &page{})
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		keep := true
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		}
	}
	return scheme, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "pages." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "pages", Singular: "page", Kind: "Page", ListKind: "PageList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				version("v1alpha1", false), version("v1beta1", false), version("v1", true),
			},
		},
	}
}
