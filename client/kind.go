package client

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// kind describes a kind of objects.
type kind struct {
	gvk        schema.GroupVersionKind
	gvr        schema.GroupVersionResource
	namespaced bool
	found      store.Found // stores of gvr in the cache of the client
}

// kinds resolves kinds through the Scheme and the RESTMapper, and caches them. Nil kinds, as those of a client that New
// has not made, return ErrNotMade.
type kinds struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	byType sync.Map // reflect.Type → *kind
	byGVK  sync.Map // schema.GroupVersionKind → *kind
}

// of returns the kind of an object, of which only the type must be set.
func (ks *kinds) of(obj runtime.Object) (*kind, error) {
	switch {
	case ks == nil:
		return nil, ErrNotMade
	case isNil(obj):
		return nil, fmt.Errorf("cannot tell the kind of an object: %w", ErrNil)
	}
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		gvk := obj.GetObjectKind().GroupVersionKind()
		if gvk.Kind == "" || gvk.Version == "" {
			return nil, fmt.Errorf("cannot tell the kind of a %T: set its apiVersion and kind", obj)
		}
		return ks.mapped(gvk)
	}
	t := reflect.TypeOf(obj)
	if k, ok := ks.byType.Load(t); ok {
		return k.(*kind), nil
	}
	gvks, _, err := ks.scheme.ObjectKinds(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot tell the kind of a %T: %w", obj, err)
	}
	gvk := gvks[0]
	if len(gvks) > 1 {
		// If a type is registered under several kinds, the object must name its kind.
		if own := obj.GetObjectKind().GroupVersionKind(); own.Kind != "" {
			gvk = own
		} else {
			return nil, fmt.Errorf("cannot tell the kind of a %T: it is registered as %v", obj, gvks)
		}
	}
	k, err := ks.mapped(gvk)
	if err == nil && len(gvks) == 1 {
		ks.byType.Store(t, k)
	}
	return k, err
}

// ofList returns the kind of the items of a list.
func (ks *kinds) ofList(list runtime.Object) (*kind, error) {
	switch {
	case ks == nil:
		return nil, ErrNotMade
	case isNil(list):
		return nil, fmt.Errorf("cannot tell the kind of a list: %w", ErrNil)
	}
	gvk := list.GetObjectKind().GroupVersionKind()
	switch list.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadataList:
	default:
		gvks, _, err := ks.scheme.ObjectKinds(list)
		if err != nil {
			return nil, fmt.Errorf("cannot tell the kind of a %T: %w", list, err)
		}
		gvk = gvks[0]
	}
	item, ok := strings.CutSuffix(gvk.Kind, "List")
	if !ok {
		return nil, fmt.Errorf("cannot tell the kind of the items of a %T: its kind is %q, which does not end in List", list,
			gvk.Kind)
	}
	return ks.mapped(gvk.GroupVersion().WithKind(item))
}

// kindFor returns the kind of a Go type.
func kindFor[T any, PT ObjectOf[T]](ks *kinds) (*kind, error) {
	if ks == nil {
		return nil, ErrNotMade
	}
	if k, ok := ks.byType.Load(reflect.TypeFor[*T]()); ok {
		return k.(*kind), nil
	}
	return ks.of(PT(new(T)))
}

func (ks *kinds) mapped(gvk schema.GroupVersionKind) (*kind, error) {
	if k, ok := ks.byGVK.Load(gvk); ok {
		return k.(*kind), nil
	}
	m, err := ks.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("cannot tell the resource of %s: %w: is its CustomResourceDefinition installed?", gvk, err)
	case err != nil:
		return nil, fmt.Errorf("cannot tell the resource of %s: %w", gvk, err)
	}
	k, _ := ks.byGVK.LoadOrStore(gvk, &kind{
		gvk: gvk, gvr: m.Resource, namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace,
	})
	return k.(*kind), nil
}

func (k *kind) fail(op string, key cache.Key, err error) error {
	return &Error{Op: op, Kind: k.gvk.Kind, Key: key, Err: err}
}

// absent returns the error for an object that does not exist according to the cache. It satisfies apierrors.IsNotFound.
func (k *kind) absent(key cache.Key) error {
	return apierrors.NewNotFound(k.gvr.GroupResource(), key.Name)
}
