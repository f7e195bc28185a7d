package hookbed

import (
	"context"
	"errors"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OldPage is version v1alpha1 of a resource. Its address is a single string.
type OldPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Address string `json:"address"`
	} `json:"spec"`
}

// Page is version v1, which separates host and port.
type Page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Host string `json:"host"`
		Port string `json:"port,omitempty"`
		TLS  bool   `json:"tls,omitempty"` // an annotation in v1alpha1
	} `json:"spec"`
}

// MidPage is version v1beta1, which has the host only.
type MidPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		HostName string `json:"hostName"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (p *OldPage) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (p *Page) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (p *MidPage) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// Pages returns a scheme with the versions of Page in a group, and their custom resource definition.
func Pages(group string) (*runtime.Scheme, *apiextensionsv1.CustomResourceDefinition) {
	scheme := runtime.NewScheme()
	add := func(version string, obj runtime.Object) {
		gv := schema.GroupVersion{Group: group, Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind("Page"), obj)
		metav1.AddToGroupVersion(scheme, gv)
	}
	add("v1alpha1", &OldPage{})
	add("v1beta1", &MidPage{})
	add("v1", &Page{})
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

const tlsNote = "pages.example.com/tls"

// OldToPage converts a page. It fails without a host, and panics for the address "panic".
func OldToPage(_ context.Context, in *OldPage) (*Page, error) {
	if in.Spec.Address == "panic" {
		panic("broken conversion")
	}
	host, port, _ := strings.Cut(in.Spec.Address, ":")
	if host == "" {
		return nil, errors.New("it has no host")
	}
	out := &Page{}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Host, out.Spec.Port = host, port
	if out.Spec.TLS = out.Annotations[tlsNote] != ""; out.Spec.TLS {
		delete(out.Annotations, tlsNote)
	}
	return out, nil
}

// PageToOld converts a page, and keeps TLS in an annotation.
func PageToOld(_ context.Context, in *Page) (*OldPage, error) {
	out := &OldPage{}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Address = in.Spec.Host + ":" + in.Spec.Port
	if in.Spec.TLS {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, tlsNote, "yes")
	}
	return out, nil
}

// MidToPage converts a page, and leaves the metadata to package admission.
func MidToPage(_ context.Context, in *MidPage) (*Page, error) {
	out := &Page{}
	out.Spec.Host = in.Spec.HostName
	return out, nil
}

// PageToMid converts a page, and leaves the metadata to package admission.
func PageToMid(_ context.Context, in *Page) (*MidPage, error) {
	out := &MidPage{}
	out.Spec.HostName = in.Spec.Host
	return out, nil
}
