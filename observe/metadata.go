package observe

import (
	"context"
	"iter"
	"reflect"
	"slices"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A source whose observers take only metadata is not watched as a whole. Its observers are attached to its twin, which
// transfers and stores only metadata. If an observer that takes whole objects is added later, the source is opened in
// addition, and the observers of metadata stay attached to the twin.

// expecting is an optional interface of Stores. *cache.Cache implements it.
type expecting interface{ Expect(store.Request) }

// base returns the source as it was declared.
func (o *Origin) base() *Origin {
	if o.whole != nil {
		return o.whole
	}
	return o
}

// metadata returns the twin of a source. It requires the lock of the registry.
func (o *Origin) metadata() *Origin {
	if o.twin == nil {
		o.twin = &Origin{
			registry: o.registry, selector: o.selector, object: metadataType, place: o.place, settings: o.settings, whole: o,
		}
	}
	return o.twin
}

// roots yields the sources that can be opened: each source and its twin. It requires the lock.
func (r *Registry) roots() iter.Seq[*Origin] {
	return func(yield func(*Origin) bool) {
		for _, o := range r.origins {
			if !yield(o) || o.twin != nil && !yield(o.twin) {
				return
			}
		}
	}
}

// takesMetadata reports whether a reader of type takes needs only metadata of the objects of a selector, and so do the
// filters before it. It requires the lock.
func (r *Registry) takesMetadata(s Selector, takes reflect.Type) bool {
	o := r.origin(s)
	for range r.origins { // a cycle has no more steps than there are sources
		switch {
		case takes != metadataType || o == nil:
			return false
		case o.filter == nil:
			return o.derive == nil
		}
		takes, o = o.inputs[0].takes, r.origin(o.inputs[0].selector)
	}
	return false
}

// wantsWhole reports whether a source is opened as a whole, or an observer takes its whole objects. It requires the
// lock.
func (r *Registry) wantsWhole(root *Origin) bool {
	if root.feed != nil || root.opening {
		return true
	}
	wants := func(s Selector, takes reflect.Type) bool {
		of, _ := r.resolve(r.origin(s))
		return of == root && !r.takesMetadata(s, takes)
	}
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return !o.removed && wants(o.selector, o.object) }) ||
		slices.ContainsFunc(r.origins, func(o *Origin) bool {
			return o.derive != nil && r.used(o) &&
				slices.ContainsFunc(o.inputs, func(in input) bool { return wants(in.selector, in.takes) })
		})
}

// expect announces the sources that will be opened as a whole, as far as their requests are known. Another source of
// the same objects may take metadata. It requires the lock.
func (r *Registry) expect() {
	stores, ok := r.opts.Stores.(expecting)
	if !ok {
		return
	}
	for _, o := range r.origins {
		if !o.settings.fixed || !r.wantsWhole(o) {
			continue
		}
		if req, err := r.request(o, o.settings.known); err == nil {
			stores.Expect(req)
		}
	}
}

// request returns the store request of a source or its twin. It requires the lock.
func (r *Registry) request(o *Origin, options []cache.Option) (store.Request, error) {
	base := o.base()
	req := store.Request{Kind: base.kind, Options: options, Content: cache.Content{Metadata: o != base}}
	if req.Kind.Empty() {
		var err error
		if req.Kind, err = r.kindOf(base.object); err != nil {
			return req, err
		}
	}
	req.Unstructured = o == base && (o.object == unstructuredType || r.wanted(o.selector, unstructuredType))
	if assigned := base.assigned.Load(); assigned != nil {
		req.Options = append(slices.Clone(options), cache.Namespaces(*assigned...))
	}
	return req, nil
}

// options returns the options of the settings, which are computed once, by either the source or its twin.
func (o *Origin) options(ctx context.Context) ([]cache.Option, error) {
	base := o.base()
	select {
	case base.finding <- struct{}{}:
		defer func() { <-base.finding }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if settled := base.settled.Load(); settled != nil {
		return *settled, nil
	}
	found, err := base.settings.find(ctx)
	if err != nil {
		return nil, err
	}
	base.settled.Store(&found)
	return found, settings{known: found}.check()
}
