package observe

import (
	"reflect"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Filter declares a source that has the objects of another one for which matches is true. It costs no memory: the
// objects stay where they are, and an observer is told Added and Deleted when one starts or ceases to match. matches
// must depend on the object alone; one that panics leaves the object out. T is the type of the other source, or
// metadata of any.
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

// Map declares a source of what fn makes of each object of another one; nil leaves it out. What fn leaves empty of
// namespace, name and uid is taken from the object that it was made from, and resourceVersion counts the changes of the
// derived source. The same outcome again is no event.
//
// fn must depend on the object alone and must not change it; it is called once per change. If it panics, or makes what
// cannot be encoded, the object is reported as quarantined and what was made of it before stays. If two objects are
// made into one of the same key, the first one counts, and the other when the first has gone.
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

// Join declares a source of the objects of several others of one type together. Of objects with the same key, that of
// the source that is named first counts. It is synced when all of them are.
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
