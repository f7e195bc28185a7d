package crd

import (
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Names in the models for server-side apply.
const (
	objectMetaModel = "ObjectMeta"
	refPrefix       = "#/definitions/"
)

// model returns the model of a version for server-side apply.
func (s *schema) model(group, version, kind string) *spec.Schema {
	out := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if s.structural != nil {
		out = s.structural.ToKubeOpenAPI()
		addIdentity(out)
		addEmbedded(out)
	}
	out.AddExtension("x-kubernetes-group-version-kind", []any{
		map[string]any{"group": group, "version": version, "kind": kind},
	})
	return out
}

// addIdentity adds the fields that every object has.
func addIdentity(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema(refPrefix + objectMetaModel))
}

// addEmbedded adds these fields to the objects inside of other objects.
func addEmbedded(s *spec.Schema) {
	if s == nil {
		return
	}
	for name := range s.Properties {
		property := s.Properties[name]
		addEmbedded(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema)
	}
	if yes, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); yes {
		addIdentity(s)
	}
}

// objectMetaSchema returns the model of metadata.
func objectMetaSchema() *spec.Schema {
	object := func() *spec.Schema { return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}} }
	out := object()
	for _, name := range []string{
		"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "creationTimestamp",
		"deletionTimestamp",
	} {
		out.SetProperty(name, *spec.StringProperty())
	}
	out.SetProperty("generation", *spec.Int64Property())
	out.SetProperty("deletionGracePeriodSeconds", *spec.Int64Property())
	out.SetProperty("labels", *spec.MapProperty(spec.StringProperty()))
	out.SetProperty("annotations", *spec.MapProperty(spec.StringProperty()))
	finalizers := spec.ArrayProperty(spec.StringProperty())
	finalizers.AddExtension("x-kubernetes-list-type", "set")
	out.SetProperty("finalizers", *finalizers)
	owner := object()
	for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
		owner.SetProperty(name, *spec.StringProperty())
	}
	owner.SetProperty("controller", *spec.BooleanProperty())
	owner.SetProperty("blockOwnerDeletion", *spec.BooleanProperty())
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	owners := spec.ArrayProperty(owner)
	owners.AddExtension("x-kubernetes-list-type", "map")
	owners.AddExtension("x-kubernetes-list-map-keys", []any{"uid"})
	out.SetProperty("ownerReferences", *owners)
	managed := spec.ArrayProperty(object())
	managed.AddExtension("x-kubernetes-list-type", "atomic")
	out.SetProperty("managedFields", *managed)
	return out
}
