package observe

import (
	"reflect"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Filter declares a source with the objects of another source for which matches returns true. It needs no memory of its
// own, since the objects are shared. An observer gets Added when an object starts to match and Deleted when it ceases
// to match. matches must depend on the object alone; if it panics, the object does not match. T is the type of the
// other source, or metav1.PartialObjectMetadata.
func Filter[T any, P Object[T]](h Host, s, from Selector, matches func(*T) bool) *Origin {
	o := &Origin{
		registry: h.Observers(), selector: s, place: declared(), nilFunc: matches == nil,
		inputs: []input{{from, reflect.TypeFor[T]()}},
	}
	o.filter = func(r *cache.Record) bool {
		object, err := store.As[T](r)
		return err == nil && matches(object)
	}
	o.registry.declareOrigin(o)
	return o
}

// Map declares a source of the objects that fn makes from the objects of another source; fn returns nil to omit an
// object. A namespace, name or uid that fn leaves empty is copied from the original object. resourceVersion counts the
// changes of the derived source. An unchanged result causes no event.
//
// fn must depend on the object alone and must not modify it. It is called once per change. If fn panics, or its result
// cannot be encoded, the object is reported as quarantined and its previous result stays. If two results have the same
// key, the first one wins; the second replaces it when the first is gone.
func Map[T, U any, P Object[T], Q Object[U]](h Host, s, from Selector, fn func(*T) *U) *Origin {
	o := &Origin{
		registry: h.Observers(), selector: s, object: reflect.TypeFor[U](), place: declared(), nilFunc: fn == nil,
		inputs: []input{{from, reflect.TypeFor[T]()}},
	}
	o.derive = derivedFrom[U, Q](func(r *cache.Record) (*U, error) {
		object, err := store.As[T](r)
		if err != nil {
			return nil, err
		}
		return fn(object), nil
	})
	o.registry.declareOrigin(o)
	return o
}

// Join declares a source with the objects of several sources of one type. For a key in several sources, the object of
// the source named first wins. The joined source is synced when all its inputs are.
func Join[T any, P Object[T]](h Host, s Selector, from ...Selector) *Origin {
	o := &Origin{
		registry: h.Observers(), selector: s, object: reflect.TypeFor[T](), place: declared(),
	}
	for _, f := range from {
		o.inputs = append(o.inputs, input{f, o.object})
	}
	o.derive = derivedFrom[T, P](store.As[T])
	o.registry.declareOrigin(o)
	return o
}
