package crd

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/internal/custom"
)

// compile makes the rules of all versions of a valid definition.
func compile(crd *apiextensionsv1.CustomResourceDefinition) (*custom.Definition, error) {
	names := crd.Spec.Names
	d := &custom.Definition{
		Group: crd.Spec.Group, Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, ListKind: names.ListKind,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	models := map[string]*spec.Schema{objectMetaModel: objectMetaSchema()}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served && !v.Storage {
			continue
		}
		s, err := newSchema(crd, v)
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
		models[v.Name] = s.model(crd.Spec.Group, v.Name, names.Kind)
		d.Versions = append(d.Versions, s.version(crd, v))
	}
	types, err := managedfields.NewTypeConverter(models, crd.Spec.PreserveUnknownFields)
	if err != nil {
		return nil, fmt.Errorf("cannot make the types for server-side apply: %w", err)
	}
	for _, v := range d.Versions {
		v.Types = types
	}
	return d, nil
}

// schema has the compiled schema of one version.
type schema struct {
	structural *structuralschema.Structural // nil: there is no schema
	preserve   bool                         // spec.preserveUnknownFields
	whole      validation.SchemaValidator
	status     validation.SchemaValidator // nil: status has no schema
	rules      *cel.Validator             // nil: there are no rules
	scale      *custom.Scale
}

func newSchema(
	crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion,
) (*schema, error) {
	s := &schema{preserve: crd.Spec.PreserveUnknownFields}
	var props *apiextensions.JSONSchemaProps
	if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
		var internal apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema,
			&internal, nil); err != nil {
			return nil, err
		}
		props = internal.OpenAPIV3Schema
		structural, err := structuralschema.NewStructural(props)
		if err != nil {
			return nil, err
		}
		s.structural = structural.DeepCopy() // which shares its defaults with props otherwise
		if err := defaulting.PruneDefaults(s.structural); err != nil {
			return nil, err
		}
	}
	var err error
	if s.whole, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	if props != nil {
		if status, ok := props.Properties["status"]; ok {
			if s.status, _, err = validation.NewSchemaValidator(&status); err != nil {
				return nil, err
			}
		}
		s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	}
	if sub := v.Subresources; sub != nil && sub.Scale != nil {
		s.scale = &custom.Scale{Spec: fields(sub.Scale.SpecReplicasPath), Status: fields(sub.Scale.StatusReplicasPath)}
		if path := sub.Scale.LabelSelectorPath; path != nil && *path != "" {
			s.scale.Selector = fields(*path)
		}
	}
	return s, nil
}

// fields splits a path such as .spec.replicas.
func fields(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

func (s *schema) version(
	crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion,
) *custom.Version {
	out := &custom.Version{
		Name: v.Name, Served: v.Served, Stored: v.Storage,
		Status:   v.Subresources != nil && v.Subresources.Status != nil,
		Scale:    s.scale,
		Coerce:   s.coerce,
		Default:  func(content map[string]any) { defaulting.Default(content, s.structural) },
		Validate: s.validate,
	}
	if len(v.SelectableFields) > 0 {
		out.Fields = map[string]func(map[string]any) string{}
	}
	for _, f := range v.SelectableFields {
		out.Fields[strings.TrimPrefix(f.JSONPath, ".")] = selectable(f.JSONPath)
	}
	if v.Deprecated {
		out.Warnings = []string{deprecation(crd.Spec, v)}
	}
	return out
}

// coerce removes what is not in the schema from everything but the metadata.
func (s *schema) coerce(content map[string]any) (unknown []string, err error) {
	if !s.preserve {
		unknown = pruning.PruneWithOptions(content, s.structural, true,
			structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		defaulting.PruneNonNullableNullsWithoutDefaults(content, s.structural)
	}
	failed, more := objectmeta.CoerceWithOptions(nil, content, s.structural, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if failed != nil {
		return nil, failed
	}
	return append(unknown, more...), nil
}

// selectable returns the function for a field that selectors may use. A JSONPath is not safe for concurrent use.
func selectable(path string) func(map[string]any) string {
	return func(content map[string]any) string {
		parser := jsonpath.New("field").AllowMissingKeys(true)
		if parser.Parse("{"+path+"}") != nil {
			return ""
		}
		results, err := parser.FindResults(content)
		if err != nil || len(results) != 1 || len(results[0]) != 1 {
			return ""
		}
		if value := results[0][0].Interface(); value != nil {
			return fmt.Sprint(value)
		}
		return ""
	}
}

// deprecation returns the warning of a deprecated version.
func deprecation(
	of apiextensionsv1.CustomResourceDefinitionSpec, v *apiextensionsv1.CustomResourceDefinitionVersion,
) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	var better []string
	for _, other := range of.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 {
			better = append(better, other.Name)
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", of.Group, v.Name, of.Names.Kind)
	if len(better) > 0 {
		best := slices.MaxFunc(better, version.CompareKubeAwareVersionStrings)
		text += fmt.Sprintf("; use %s/%s %s", of.Group, best, of.Names.Kind)
	}
	return text
}
