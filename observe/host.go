package observe

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Host keeps declarations and runs them. The fairlead runtime is one, and so is a [Registry].
type Host interface {
	// Observers returns the registry of the host.
	Observers() *Registry
}

// Object is a pointer to T that is a Kubernetes object, such as *corev1.Pod.
type Object[T any] = client.ObjectOf[T]

// Source declares where the objects of a selector come from. T is their Go type, for example corev1.ConfigMap. The
// options restrict what is watched; none means everything in all namespaces.
func Source[T any, P Object[T]](h Host, s Selector, options ...cache.Option) *Origin {
	return watched[T, P](h, s, schema.GroupVersionKind{}, fixed(options))
}

// SourceFunc declares a source whose options are found out when it is started, for example from the host's
// configuration. fn is called only if somebody observes the selector, and not again once it has returned no error.
func SourceFunc[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context) ([]cache.Option, error)) *Origin {
	return watched[T, P](h, s, schema.GroupVersionKind{}, settings{find: fn})
}

// SourceOfKind declares a source of objects without a Go type of their own; observers take unstructured.Unstructured.
func SourceOfKind(h Host, s Selector, kind schema.GroupVersionKind, options ...cache.Option) *Origin {
	return watched[unstructured.Unstructured](h, s, kind, fixed(options))
}

// settings are the options of a source: known when it is declared, or found out when it starts.
type settings struct {
	known []cache.Option
	fixed bool // known is what there is to find
	find  func(context.Context) ([]cache.Option, error)
}

func fixed(options []cache.Option) settings {
	return settings{known: options, fixed: true, find: func(context.Context) ([]cache.Option, error) {
		return options, nil
	}}
}

// On declares an observer of a selector. T is the type of the source, or metav1.PartialObjectMetadata for the metadata
// of any source, or unstructured.Unstructured. Of a source whose observers, and the filters before them, all take the
// metadata nothing else is transferred or held. The observer can be declared before or after the source; while the host
// runs it is started at once, in the background, and a mistake in its declaration is logged, and returned at the end:
// see [Registry.Mistakes].
//
// fn is called as the options say, by default for one event at a time. Its context ends when the host stops. An error
// or a panic concerns this observer only, see [OnFailure].
func On[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context, e Event[T]) error,
	opts ...Option,
) *Observer {
	o := &Observer{
		selector: s, object: reflect.TypeFor[T](), place: declared(), registry: h.Observers(),
		opts: newOptions(opts),
	}
	if fn != nil {
		o.call = caller(o, fn)
	}
	o.registry.declareObserver(o)
	return o
}

// OnObject is [On] for code that does not care for the type: it is given the objects as the source has them.
func OnObject(h Host, s Selector, fn func(ctx context.Context, e ObjectEvent) error, opts ...Option) *Observer {
	o := &Observer{selector: s, place: declared(), registry: h.Observers(), opts: newOptions(opts)}
	if fn != nil {
		o.call = objectCaller(o, fn)
	}
	o.registry.declareObserver(o)
	return o
}

// caller turns a typed function into one that takes events of a store. Of an event that the mask leaves out nothing is
// looked at, and of others the object is not decoded before it is asked for; see demand.
func caller[T any](o *Observer, fn func(context.Context, Event[T]) error) func(context.Context, *store.Event) error {
	return func(ctx context.Context, e *store.Event) error {
		t := typeOf(e.Type)
		if t == 0 || !o.opts.mask.accepts(t, e.Initial) {
			return nil
		}
		typed := Event[T]{Change: changeOf(e, t)}
		var err error
		if typed.given, err = o.demand.prepare(e, reflect.TypeFor[T](), o.stats.handled.Load()); err != nil {
			return err
		}
		if typed.demand != nil {
			defer o.demand.count()
		}
		if o.registry.opts.DetectMutation {
			defer o.verify(e)()
		}
		return fn(ctx, typed)
	}
}

// verify returns what looks whether the observer has changed what it was given. What others had changed before is
// reported at once, without its name.
func (o *Observer) verify(e *store.Event) func() {
	look := func(reader string) {
		for _, r := range []*cache.Record{e.Object, e.Prior} {
			if r != nil {
				r.Verify(reader)
			}
		}
	}
	look("")
	return func() { look(o.Name()) }
}

// objectCaller is caller for an observer of any type; the observer knows its source before the first event.
func objectCaller(o *Observer, fn func(context.Context, ObjectEvent) error) func(context.Context, *store.Event) error {
	return func(ctx context.Context, e *store.Event) error {
		t := typeOf(e.Type)
		if t == 0 || !o.opts.mask.accepts(t, e.Initial) {
			return nil
		}
		event := ObjectEvent{Change: changeOf(e, t), origin: o.root}
		var err error
		if event.given, err = o.demand.prepare(e, o.root.object, o.stats.handled.Load()); err != nil {
			return err
		}
		if event.demand != nil {
			defer o.demand.count()
		}
		if o.registry.opts.DetectMutation {
			defer o.verify(e)()
		}
		return fn(ctx, event)
	}
}

// declared returns file:line of a declaration.
func declared() string { return place.Outside("github.com/fairlead-io/fairlead/observe") }
