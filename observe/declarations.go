package observe

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/rights"
)

// declarations are the declared sources and observers, as a graph whose edges are selectors. They have no lock of their
// own: Registry.mu guards them and the state of their members.
type declarations struct {
	scheme    *runtime.Scheme
	origins   []*Origin
	observers []*Observer
	leaving   []*Observer // removed during a call
}

// remove withdraws an observer. attached is false if it was stopped or removed before. If the source has no other
// observer, remove returns its feed, to be closed without the lock.
func (d *declarations) remove(o *Observer) (f *feed, attached bool) {
	d.observers = slices.DeleteFunc(d.observers, func(other *Observer) bool { return other == o })
	o.failure = nil // a stopped observer reports no failure
	if o.removed {
		return nil, false
	}
	f = d.detach(o)
	d.leaving = slices.DeleteFunc(d.leaving, func(other *Observer) bool { return !other.working() })
	if o.working() {
		d.leaving = append(d.leaving, o)
	}
	return f, true
}

// stop detaches an observer that remains declared, and records the reason. Its result is that of detach.
func (d *declarations) stop(o *Observer, reason error) *feed {
	if o.removed {
		return nil
	}
	o.failure = reason
	return d.detach(o)
}

// detach ends the delivery to an observer. If the source has no other observer, detach returns its feed, to be closed
// without the lock.
func (d *declarations) detach(o *Observer) *feed {
	o.removed = true
	o.end()
	if o.root == nil || d.observed(o.root) {
		return nil
	}
	return o.root.take()
}

// openErrors returns the errors of the last attempts to open the sources, except those that ended explains.
func (d *declarations) openErrors(ended error) (errs []error) {
	for o := range d.roots() {
		if o.err != nil && (ended == nil || !errors.Is(o.err, ended)) {
			errs = append(errs, o.err)
		}
	}
	return errs
}

// observed reports whether a source has an attached observer.
func (d *declarations) observed(root *Origin) bool {
	return slices.ContainsFunc(d.observers, func(o *Observer) bool { return o.root == root && !o.removed })
}

// origin returns the first source of a selector, or nil.
func (d *declarations) origin(s Selector) *Origin {
	for _, o := range d.origins {
		if o.selector == s {
			return o
		}
	}
	return nil
}

// resolve follows filters to their source. It returns nil if there is none. filter combines all filters; nil means no
// filter.
func (d *declarations) resolve(o *Origin) (root *Origin, filter func(*cache.Record) bool) {
	for range d.origins { // a cycle has no more steps than there are sources
		if o == nil || o.filter == nil {
			return o, filter
		}
		filter = both(o.filter, filter)
		o = d.origin(o.inputs[0].selector)
	}
	return nil, nil
}

func both(first, second func(*cache.Record) bool) func(*cache.Record) bool {
	if second == nil {
		return first
	}
	return func(r *cache.Record) bool { return first(r) && second(r) }
}

// reaches reports whether from is derived from target.
func (d *declarations) reaches(from, target *Origin, seen []*Origin) bool {
	for _, in := range from.inputs {
		o := d.origin(in.selector)
		if o == nil || slices.Contains(seen, o) {
			continue
		}
		if o == target || d.reaches(o, target, append(seen, o)) {
			return true
		}
	}
	return false
}

// used reports whether a source has an observer, directly or through derived sources.
func (d *declarations) used(o *Origin) bool {
	return slices.ContainsFunc(d.observers, func(by *Observer) bool {
		of := d.origin(by.selector)
		return of != nil && (of == o || d.reaches(of, o, nil))
	})
}

// roots yields the sources that can be opened: each source and its twin.
func (d *declarations) roots() iter.Seq[*Origin] {
	return func(yield func(*Origin) bool) {
		for _, o := range d.origins {
			if !yield(o) || o.twin != nil && !yield(o.twin) {
				return
			}
		}
	}
}

// stores returns the stores of the open sources.
func (d *declarations) stores() map[*cache.Store]bool {
	stores := map[*cache.Store]bool{}
	for o := range d.roots() {
		if o.feed != nil {
			stores[o.feed.store] = true
		}
	}
	return stores
}

// wanted reports whether an observer takes the objects of a source as this type.
func (d *declarations) wanted(s Selector, object reflect.Type) bool {
	return slices.ContainsFunc(d.observers, func(o *Observer) bool { return o.selector == s && o.object == object })
}

// rights returns the permissions to list and watch the kinds of the sources. It omits types that the scheme does not
// know.
func (d *declarations) rights() []rights.Right {
	var out []rights.Right
	for _, o := range d.origins {
		kind := o.kind
		switch {
		case o.filter != nil || o.derive != nil || len(o.inputs) > 0:
			continue
		case kind.Empty():
			var err error
			if kind, err = d.kindOf(o.object); err != nil {
				continue
			}
		}
		out = append(out, rights.Of(kind, "list", "watch"))
	}
	return out
}

// kindOf returns the kind that the scheme assigns to a Go type.
func (d *declarations) kindOf(object reflect.Type) (schema.GroupVersionKind, error) {
	obj, ok := reflect.New(object).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v is not an object", errUnknownType, object)
	}
	kinds, _, err := d.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v", errUnknownType, object)
	}
	return kinds[0], nil
}
