package observe

import (
	"context"
	"reflect"
	"slices"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A source whose observers take only metadata is not watched as a whole. Its observers are attached to its twin, which
// transfers and stores only metadata. If an observer that takes whole objects is added later, the source is opened in
// addition, and the observers of metadata stay attached to the twin.

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

// feeds returns the open feeds of a source and its twin. It requires the lock of the registry.
func (o *Origin) feeds() (open []*feed) {
	if o.feed != nil {
		open = append(open, o.feed)
	}
	if o.twin != nil && o.twin.feed != nil {
		open = append(open, o.twin.feed)
	}
	return open
}

// takesMetadata reports whether a reader of type takes needs only metadata of the objects of a selector, and so do the
// filters before it.
func (d *declarations) takesMetadata(s Selector, takes reflect.Type) bool {
	o := d.origin(s)
	for range d.origins { // a cycle has no more steps than there are sources
		switch {
		case takes != metadataType || o == nil:
			return false
		case o.filter == nil:
			return o.derive == nil
		}
		takes, o = o.inputs[0].takes, d.origin(o.inputs[0].selector)
	}
	return false
}

// wantsWhole reports whether a source is opened as a whole, or an observer takes its whole objects.
func (d *declarations) wantsWhole(root *Origin) bool {
	if root.active() {
		return true
	}
	wants := func(s Selector, takes reflect.Type) bool {
		of, _ := d.resolve(d.origin(s))
		return of == root && !d.takesMetadata(s, takes)
	}
	return slices.ContainsFunc(d.observers, func(o *Observer) bool { return !o.removed && wants(o.selector, o.object) }) ||
		slices.ContainsFunc(d.origins, func(o *Origin) bool {
			return o.derive != nil && d.used(o) &&
				slices.ContainsFunc(o.inputs, func(in input) bool { return wants(in.selector, in.takes) })
		})
}

// expect announces the sources that will be opened as a whole, as far as their requests are known. Another source of
// the same objects may take metadata.
func (d *declarations) expect(announce func(store.Request)) {
	for _, o := range d.origins {
		if !o.settings.fixed || !d.wantsWhole(o) {
			continue
		}
		if req, err := d.request(o, o.settings.known); err == nil {
			announce(req)
		}
	}
}

// request returns the store request of a source or its twin.
func (d *declarations) request(o *Origin, options []cache.Option) (store.Request, error) {
	base := o.base()
	req := store.Request{Kind: base.kind, Options: options, Content: cache.Content{Metadata: o != base}}
	if req.Kind.Empty() {
		var err error
		if req.Kind, err = d.kindOf(base.object); err != nil {
			return req, err
		}
	}
	req.Unstructured = o == base && (o.object == unstructuredType || d.wanted(o.selector, unstructuredType))
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
