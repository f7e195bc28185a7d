package observe

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// Host keeps declarations and runs them. The fairlead runtime is one.
type Host interface {
	// Observers returns the registry of the host.
	Observers() *Registry
}

// Object is a pointer to T that is a Kubernetes object, such as *corev1.Pod.
type Object[T any] interface {
	*T
	metav1.Object
	kruntime.Object
}

// Source declares where the objects of a selector come from. T is their Go type, for example corev1.ConfigMap, or
// unstructured.Unstructured with [Kind] among the options of [SourceFunc]. The options restrict what is watched; none
// means everything in all namespaces.
func Source[T any, P Object[T]](h Host, s Selector, options ...source.Option) {
	h.Observers().declareSource(&declaredSource{
		selector: s, object: reflect.TypeFor[T](), place: place(),
		options: func(context.Context) ([]source.Option, error) { return options, nil },
	})
}

// SourceFunc declares a source whose options are found out when it is started, for example from the host's
// configuration. fn is called once, and only if somebody observes the selector.
func SourceFunc[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context) ([]source.Option, error)) {
	h.Observers().declareSource(&declaredSource{selector: s, object: reflect.TypeFor[T](), place: place(), options: fn})
}

// On declares an observer of a selector. T is the type of the source, or metav1.PartialObjectMetadata for the metadata
// of any source. The observer can be declared before or after the source, also while the host runs.
//
// fn is called as the options say, by default for one event at a time. Its context ends when the host stops. An error
// or a panic concerns this observer only, see [OnFailure].
func On[T any, P Object[T]](h Host, s Selector, fn func(ctx context.Context, e Event[T]) error, opts ...Option) *Observer {
	o := &Observer{selector: s, object: reflect.TypeFor[T](), place: place(), registry: h.Observers()}
	o.opts.attempts = defaultAttempts
	for _, opt := range opts {
		opt(&o.opts)
	}
	if o.opts.attempts <= 0 {
		o.opts.attempts = defaultAttempts
	}
	if fn != nil {
		o.call = caller[T, P](fn, o.opts.mask)
	}
	o.registry.declareObserver(o)
	return o
}

// caller turns a typed function into one that takes events of a store.
func caller[T any, P Object[T]](fn func(context.Context, Event[T]) error, mask Mask) func(context.Context, store.Event) error {
	decode := store.As[T]
	return func(ctx context.Context, e store.Event) error {
		t := typeOf(e.Type)
		if t == 0 || !mask.accepts(t, e.Initial) {
			return nil
		}
		typed := Event[T]{
			Type: t, Initial: e.Initial, Inferred: e.Inferred, Key: e.Key, ResourceVersion: e.Version, Reason: e.Reason,
			prior: e.Prior, decode: decode,
		}
		if e.Object != nil {
			typed.ResourceVersion = e.Object.Version()
			object, err := decode(e.Object)
			if err != nil {
				return &DecodeError{Key: e.Key, Version: e.Object.Version(), Err: err}
			}
			typed.object = object
		}
		return fn(ctx, typed)
	}
}

func typeOf(t store.EventType) Type {
	switch t {
	case store.Added:
		return Added
	case store.Modified:
		return Modified
	case store.Deleted:
		return Deleted
	case store.Synced:
		return Synchronized
	case store.Sync:
		return Resync
	case store.Epoch:
		return Epoch
	default:
		return 0
	}
}

var (
	metadataType     = reflect.TypeFor[metav1.PartialObjectMetadata]()
	unstructuredType = reflect.TypeFor[unstructured.Unstructured]()
)

// place returns file:line of the declaration: of the first caller outside of this package.
func place() string {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !strings.Contains(frame.Function, "fairlead/observe.") || strings.HasSuffix(frame.File, "_test.go") {
			return fmt.Sprintf("%s:%d", shorten(frame.File), frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// shorten keeps the last two elements of a path: enough to find a file, and not the path of the machine it was built on.
func shorten(file string) string {
	parts := strings.Split(file, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}
