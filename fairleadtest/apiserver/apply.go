package apiserver

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// appliers holds the field managers, which are those of the real server: built-in kinds are merged by their schema, any
// other kind by deduction (lists are atomic). They are made when first needed. As on a real server without tracking,
// managedFields begin with the first apply to an object.
type appliers struct {
	mu      sync.Mutex
	schema  managedfields.TypeConverter
	manager map[string]*managedfields.FieldManager
}

func (a *appliers) get(t *table, subresource string) (*managedfields.FieldManager, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := t.res.GVR().String() + "/" + subresource
	if m := a.manager[key]; m != nil {
		return m, nil
	}
	types := managedfields.NewDeducedTypeConverter()
	if t.typed {
		if a.schema == nil {
			a.schema = applyconfigurations.NewTypeConverter(scheme.Scheme)
		}
		types = a.schema
	}
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	if t.res.has("status") {
		ignored := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		if subresource == "status" {
			ignored = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"),
				fieldpath.MakePathOrDie("metadata", "annotations"))
		}
		reset = map[fieldpath.APIVersion]fieldpath.Filter{
			fieldpath.APIVersion(t.res.apiVersion()): fieldpath.NewExcludeSetFilter(ignored),
		}
	}
	m, err := managedfields.NewDefaultCRDFieldManager(types, asIs{}, asIs{}, asIs{}, t.res.GVK(), t.res.GVK().GroupVersion(), subresource, reset)
	if err != nil {
		return nil, fmt.Errorf("cannot make the field manager of %s: %w", t.res.Resource, err)
	}
	if a.manager == nil {
		a.manager = map[string]*managedfields.FieldManager{}
	}
	a.manager[key] = m
	return m, nil
}

// apply merges config into live. It owns config and returns a new object.
func (a *appliers) apply(t *table, subresource string, live, config *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	m, err := a.get(t, subresource)
	if err != nil {
		return nil, err
	}
	config.SetResourceVersion("")
	out, err := m.Apply(live.DeepCopy(), config, manager, force)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).DeepCopy(), nil
}

// update records in next who changed what since live (nil: a create).
func (a *appliers) update(t *table, subresource string, live, next *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	m, err := a.get(t, subresource)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = &unstructured.Unstructured{Object: map[string]any{}}
		live.SetGroupVersionKind(t.res.GVK())
	}
	out, err := m.Update(live.DeepCopy(), next, manager)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).DeepCopy(), nil
}

// asIs converts, defaults and creates objects of kinds that have one version and no Go type.
type asIs struct{}

func (asIs) Default(runtime.Object) {}

func (asIs) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (asIs) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("cannot convert %T to %T", in, out)
	}
	to.Object = from.Object
	return nil
}

func (asIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
