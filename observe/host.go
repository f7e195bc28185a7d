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

// Host holds declarations and runs them. The fairlead runtime and [Registry] implement it.
type Host interface {
	// Observers returns the registry of the host.
	Observers() *Registry
}

// Object is a pointer to a Kubernetes object of type T, such as *corev1.Pod.
type Object[T any] = client.ObjectOf[T]

// Source declares a source of objects for a selector. T is their Go type, for example corev1.ConfigMap. The options
// restrict the watched objects; without options the source watches all objects in all namespaces.
func Source[T any, P Object[T]](h Host, s Selector, options ...cache.Option) *Origin {
	return watched[T, P](h, s, schema.GroupVersionKind{}, fixed(options))
}

// SourceFunc declares a source whose options fn computes when the source starts, for example from the host's
// configuration. The host calls fn only if the selector has an observer, and not again after fn has returned without an
// error.
func SourceFunc[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context) ([]cache.Option, error)) *Origin {
	return watched[T, P](h, s, schema.GroupVersionKind{}, settings{find: fn})
}

// SourceOfKind declares a source of objects without a Go type. Its observers take unstructured.Unstructured.
func SourceOfKind(h Host, s Selector, kind schema.GroupVersionKind, options ...cache.Option) *Origin {
	return watched[unstructured.Unstructured](h, s, kind, fixed(options))
}

// settings are the options of a source, known at the declaration or computed at the start.
type settings struct {
	known []cache.Option
	fixed bool // known is complete
	find  func(context.Context) ([]cache.Option, error)
}

func fixed(options []cache.Option) settings {
	return settings{known: options, fixed: true, find: func(context.Context) ([]cache.Option, error) {
		return options, nil
	}}
}

// On declares an observer of a selector. T is the type of the source, metav1.PartialObjectMetadata for the metadata of
// any source, or unstructured.Unstructured. If all observers of a source and the filters before them take only
// metadata, the source transfers and stores only metadata. The observer may be declared before or after the source.
// While the host runs, the observer starts at once in the background. A mistake in its declaration is then logged and
// returned at the end; see [Registry.Mistakes].
//
// The host calls fn as the options specify, by default for one event at a time. The context of fn ends when the host
// stops. An error or a panic affects this observer only; see [OnFailure].
func On[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context, e Event[T]) error,
	opts ...Option,
) *Observer {
	o := newObserver(h, s, reflect.TypeFor[T](), opts)
	if fn != nil {
		o.call = caller(o, fn, o.registry.opts.DetectMutation)
	}
	o.registry.declareObserver(o)
	return o
}

// OnObject is like [On] for code that is independent of the type. Objects have the type of the source.
func OnObject(h Host, s Selector, fn func(ctx context.Context, e ObjectEvent) error, opts ...Option) *Observer {
	o := newObserver(h, s, nil, opts)
	if fn != nil {
		o.call = objectCaller(o, fn, o.registry.opts.DetectMutation)
	}
	o.registry.declareObserver(o)
	return o
}

// caller adapts a typed function to events of a store. It ignores events outside the mask. For other events, it decodes
// the object on request; see demand. With verify, it checks the objects after each call.
func caller[T any](
	o *Observer, fn func(context.Context, Event[T]) error, verify bool,
) func(context.Context, *store.Event) error {
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
		if verify {
			defer o.verify(e)()
		}
		return fn(ctx, typed)
	}
}

// verify returns a function that checks whether the observer has modified its objects. verify itself reports earlier
// modifications at once, without the observer's name.
func (o *Observer) verify(e *store.Event) func() {
	check := func(reader string) {
		for _, r := range []*cache.Record{e.Object, e.Prior} {
			if r != nil {
				r.Verify(reader)
			}
		}
	}
	check("")
	return func() { check(o.Name()) }
}

// objectCaller is like caller for an observer of any type. The source of the observer is known before the first event.
func objectCaller(
	o *Observer, fn func(context.Context, ObjectEvent) error, verify bool,
) func(context.Context, *store.Event) error {
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
		if verify {
			defer o.verify(e)()
		}
		return fn(ctx, event)
	}
}

// declared returns file:line of a declaration.
func declared() string { return place.Outside("github.com/fairlead-io/fairlead/observe") }
