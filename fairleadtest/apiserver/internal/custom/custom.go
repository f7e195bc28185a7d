// Package custom is the boundary between the model of an API server and the packages of Kubernetes that understand
// schemas of CustomResourceDefinitions. Package crd implements it. So programs that serve no definitions do not link
// these packages.
package custom

import (
	"context"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Definitions are CustomResourceDefinitions for any number of servers. Its functions are safe for concurrent use.
type Definitions struct {
	// Initial are served from the start.
	Initial []Initial
	// Kind has the rules for objects of kind CustomResourceDefinition.
	Kind *Version
	// Find returns the definition for the content of a valid object. It must not modify the object.
	Find func(content map[string]any) (*Definition, error)
}

// Initial is a definition and its object without uid, version and times. Servers must not modify the object.
type Initial struct {
	Content    map[string]any
	Definition *Definition
}

// Definition is one compiled CustomResourceDefinition. Servers share it and must not modify it.
type Definition struct {
	Group, Resource, Singular, Kind, ListKind string
	ShortNames, Categories                    []string
	Namespaced                                bool

	// Versions are those that are served or stored. Exactly one is stored.
	Versions []*Version
}

// Version has the rules of one version of a kind.
type Version struct {
	Name           string
	Served, Stored bool
	Status         bool // whether it has the status subresource
	Scale          *Scale
	// Fields are the selectable fields.
	Fields map[string]func(content map[string]any) string
	// Warnings are added to each answer.
	Warnings []string

	// FromProtobuf converts a body in protobuf to JSON. nil: the kind has no such encoding.
	FromProtobuf func(body []byte) ([]byte, error)
	// Coerce removes fields that are not in the schema, and null where it is not allowed. It returns the paths of the
	// removed fields.
	Coerce func(content map[string]any) (unknown []string, err error)
	// Default sets the defaults of the schema.
	Default func(content map[string]any)
	// Empty returns an object without content, with the fields that are always present. It may be nil.
	Empty func() map[string]any
	// Prepare sets fields that clients cannot set. It may be nil. old is nil for a create.
	Prepare func(next, old map[string]any)
	// Validate checks an object. old is nil for a create. status reports a write to the status subresource.
	Validate func(ctx context.Context, next, old map[string]any, status bool) field.ErrorList
	// Types are the types of all versions for server-side apply; nil: unknown.
	Types managedfields.TypeConverter
}

// Scale has the paths of the scale subresource, as fields without dots. Selector may be empty.
type Scale struct{ Spec, Status, Selector []string }
