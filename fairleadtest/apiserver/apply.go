package apiserver

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// appliers holds the field managers of the real server. Built-in kinds are merged by their schema. Other kinds have a
// schema for metadata only; the rest is deduced, with atomic lists. Field managers are created at first use. As on a
// real server, objects that were not stored by a request have no managedFields until the first apply.
type appliers struct {
	mu      sync.Mutex
	custom  managedfields.TypeConverter
	manager map[managerKey]*managedfields.FieldManager
}

// builtInTypes returns the schema of built-in kinds. It never changes, so all servers of a process share it.
var builtInTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(builtIn().scheme)
})

type managerKey struct {
	table       *table
	subresource string
}

func (a *appliers) get(t *table, subresource string) (*managedfields.FieldManager, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := managerKey{t, subresource}
	if m := a.manager[key]; m != nil {
		return m, nil
	}
	types, err := a.types(t)
	if err != nil {
		return nil, err
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(t.res.apiVersion()): fieldpath.NewExcludeSetFilter(t.ignored(subresource)),
	}
	kind := asIs{empty: t.empty}
	if t.custom != nil {
		kind.setDefaults = t.custom.version.Default
	} else if t.strict {
		kind.setDefaults = t.defaultContent
	}
	m, err := managedfields.NewDefaultCRDFieldManager(types, kind, kind, kind, t.res.GVK(),
		t.res.GVK().GroupVersion(), subresource, reset)
	if err != nil {
		return nil, fmt.Errorf("cannot make the field manager of %s: %w", t.res.Resource, err)
	}
	if a.manager == nil {
		a.manager = map[managerKey]*managedfields.FieldManager{}
	}
	a.manager[key] = m
	return m, nil
}

func (a *appliers) types(t *table) (managedfields.TypeConverter, error) {
	if t.typed && t.res.Kind != "Scale" { // for which client-go has no schema
		return builtInTypes(), nil
	}
	if t.custom != nil && t.custom.version.Types != nil {
		return t.custom.version.Types, nil
	}
	if a.custom == nil {
		parser, err := typed.NewParser(customSchema)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the schema of custom resources: %w", err)
		}
		a.custom = customTypes{parser.Type("object")}
	}
	return a.custom, nil
}

// apply merges config into live. It takes ownership of config and returns a new object.
func (a *appliers) apply(
	t *table, subresource string, live, config *unstructured.Unstructured, manager string, force bool,
) (*unstructured.Unstructured, error) {
	m, err := a.get(t, subresource)
	if err != nil {
		return nil, err
	}
	out, err := m.Apply(live.DeepCopy(), config, manager, force)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).DeepCopy(), nil
}

// update records the ownership of the fields in next that changed since live (nil: a create). It takes ownership of
// next. Fields outside the schema are refused elsewhere.
func (a *appliers) update(
	t *table, subresource string, live, next *unstructured.Unstructured, manager string,
) *unstructured.Unstructured {
	m, err := a.get(t, subresource)
	if err != nil {
		return next
	}
	if live == nil {
		live = t.empty()
	}
	return m.UpdateNoErrors(live.DeepCopy(), next, manager).(*unstructured.Unstructured).DeepCopy()
}

// empty returns an object without content. For built-in kinds it has the fields that are always present.
func (t *table) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if t.typed {
		if obj, err := t.res.newTyped(); err == nil {
			if content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err == nil {
				u.Object = content
			}
		}
	}
	if t.custom != nil && t.custom.version.Empty != nil {
		u.Object = t.custom.version.Empty()
	}
	delete(u.Object, "metadata")
	u.SetGroupVersionKind(t.res.GVK())
	return u
}

// customTypes merges objects that have a schema for metadata only.
type customTypes struct{ typed.ParseableType }

// ObjectToTyped implements [managedfields.TypeConverter].
func (c customTypes) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("cannot merge a %T", obj)
	}
	return c.FromUnstructured(u.Object, opts...)
}

// TypedToObject implements [managedfields.TypeConverter].
func (c customTypes) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	content, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("cannot make an object of a %T", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// customSchema is the schema of every custom resource: that of its metadata, and untyped content. Lists without a known
// type are atomic.
const customSchema = `types:
- name: object
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: metadata}}
    elementType: {namedType: any}
- name: metadata
  map:
    fields:
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - name: ownerReferences
      type: {list: {elementType: {namedType: owner}, elementRelationship: associative, keys: [uid]}}
    - {name: managedFields, type: {list: {elementType: {namedType: any}, elementRelationship: atomic}}}
    elementType: {namedType: any}
- name: owner
  map:
    elementType: {namedType: any}
    elementRelationship: atomic
- name: any
  scalar: untyped
  list: {elementType: {namedType: any}, elementRelationship: atomic}
  map: {elementType: {namedType: any}, elementRelationship: separable}
`

// asIs converts, defaults and creates objects whose versions have the same content.
type asIs struct {
	empty       func() *unstructured.Unstructured // an object without content
	setDefaults func(content map[string]any)      // nil: there are none
}

func (a asIs) Default(obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok && a.setDefaults != nil {
		a.setDefaults(u.Object)
	}
}

func (a asIs) New(schema.GroupVersionKind) (runtime.Object, error) { return a.empty(), nil }

func (asIs) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("cannot convert %T to %T", in, out)
	}
	to.Object = from.Object
	return nil
}

func (asIs) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	kind, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	u, known := in.(*unstructured.Unstructured)
	if !ok || !known || kind == from {
		return in, nil
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(kind)
	return out, nil
}

func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
