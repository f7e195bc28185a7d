package observe

import (
	"context"
	"iter"
	"reflect"
	"slices"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A source whose observers take no more than metadata is not watched as a whole: they are attached to its twin, which
// transfers and holds metadata only. If somebody who takes the objects comes later, the source is opened besides, and
// those who take metadata stay where they are.

// expecting is what Stores may be besides: a *cache.Cache is.
type expecting interface{ Expect(store.Request) }

// base is the source as it was declared.
func (o *Origin) base() *Origin {
	if o.whole != nil {
		return o.whole
	}
	return o
}

// metadata returns the twin of a source. The lock of the registry is held.
func (o *Origin) metadata() *Origin {
	if o.twin == nil {
		o.twin = &Origin{
			registry: o.registry, selector: o.selector, object: metadataType, place: o.place, settings: o.settings, whole: o,
		}
	}
	return o.twin
}

// roots yields what can be open: sources, each with its twin. The lock is held.
func (r *Registry) roots() iter.Seq[*Origin] {
	return func(yield func(*Origin) bool) {
		for _, o := range r.origins {
			if !yield(o) || o.twin != nil && !yield(o.twin) {
				return
			}
		}
	}
}

// takesMetadata says whether who takes the objects of a selector as a type looks at no more than their metadata, and
// the filters in between do not either. The lock is held.
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

// wantsWhole says whether the objects of a source are watched, or somebody wants them as more than metadata. The lock
// is held.
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

// expect announces the sources that will be opened as a whole, as far as it is known now what they watch: another
// source of the same objects may be of metadata. The lock is held.
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

// request is what a source, or its twin, asks for. The lock is held.
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

// options are those of the settings; they are found out once. Of a source and its twin one asks.
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
