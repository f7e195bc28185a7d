package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
)

// watch is one kind of objects whose events lead to reconciliations.
type watch struct {
	name    string
	object  client.Object // its type says which kind is meant
	kind    schema.GroupVersionKind
	options []cache.Option
	filters []func(*cache.Record) (bool, error)
	changes []func(old, now *cache.Record) (bool, error)
	// mapped returns the keys of the primaries that an object concerns; nil: the object is the primary.
	mapped    func(r *cache.Record, p primary) ([]Key, error)
	everySlot bool           // hold the objects of every slot, although replicas share them
	takes     []reflect.Type // what the functions of the user take
	errs      []error        // mistakes of the declaration
}

// function notes what a function of the user takes.
func (w *watch) function(option string, takes reflect.Type, isNil bool) {
	if isNil {
		w.errs = append(w.errs, fmt.Errorf("%w: the function of %s is nil", ErrInvalid, option))
	}
	w.takes = append(w.takes, takes)
}

// check returns the mistakes of the declaration. Functions take the objects of the watch, or what any object can be
// read as.
func (w *watch) check() error {
	errs := w.errs
	object := reflect.TypeOf(w.object).Elem()
	for _, t := range w.takes {
		if t != object && !readsAny(t) && !readsAny(object) {
			errs = append(errs, fmt.Errorf("%w: a function takes %v, and the objects of the watch are %v", ErrInvalid, t,
				object))
		}
	}
	return errors.Join(errs...)
}

func readsAny(t reflect.Type) bool {
	return t == reflect.TypeFor[metav1.PartialObjectMetadata]() || t == reflect.TypeFor[unstructured.Unstructured]()
}

// primary is what a mapping needs to know of the objects that are reconciled.
type primary struct {
	kind       schema.GroupVersionKind
	namespaced bool
}

// WatchOption tunes one watch.
type WatchOption func(*watch)

// Named sets the name of a watch, by which reasons and errors call it; its kind by default.
func Named(name string) WatchOption { return func(w *watch) { w.name = name } }

// Kind says which kind is watched, for unstructured.Unstructured and metav1.PartialObjectMetadata. Of what is watched
// as the latter, and filtered and mapped by functions of it, nothing but metadata is transferred and held, unless the
// program watches the same objects as a whole, too. The client's reads of whole objects of the kind are requests then.
func Kind(gvk schema.GroupVersionKind) WatchOption { return func(w *watch) { w.kind = gvk } }

// From restricts what is watched: cache.Namespaces, cache.Labels and the like. The client's reads of the kind are
// then answered by the cache as far as it holds what they may find, and are requests otherwise: with
// cache.Labels("app=web"), a Get of an object that has the label, and a List with client.Labels("app=web") or more; in
// the namespaces of cache.Namespaces, all. With cache.Fields a Get of an object that is selected is answered, if the
// selector is of fields of a built-in kind or of those of cache.CacheOptions.Fields; each other read is a request,
// unless another watch of the kind, of anybody in the program, holds more.
func From(opts ...cache.Option) WatchOption {
	return func(w *watch) { w.options = append(w.options, opts...) }
}

// If restricts a watch to the objects for which fn is true. An object that starts or ceases to be one counts as added
// or deleted. fn must depend on the object alone, which is READ-ONLY.
func If[S any](fn func(obj *S) bool) WatchOption {
	return func(w *watch) {
		w.function("If", reflect.TypeFor[S](), fn == nil)
		w.filters = append(w.filters, func(r *cache.Record) (bool, error) {
			obj, err := store.As[S](r)
			if err != nil {
				return false, err
			}
			return fn(obj), nil
		})
	}
}

// Labeled restricts a watch to the objects that have a label, whatever its value: what If can do, without decoding any.
func Labeled(key string) WatchOption {
	return func(w *watch) {
		w.filters = append(w.filters, func(r *cache.Record) (bool, error) {
			_, ok := r.Label(key)
			return ok, nil
		})
	}
}

// IfChanged restricts the modifications of a watch to those for which fn is true. Both states are READ-ONLY; the old
// one is what this controller was given last.
func IfChanged[S any](fn func(old, now *S) bool) WatchOption {
	return func(w *watch) {
		w.function("IfChanged", reflect.TypeFor[S](), fn == nil)
		w.changes = append(w.changes, func(old, now *cache.Record) (bool, error) {
			o, err := store.As[S](old)
			if err != nil {
				return true, nil
			}
			n, err := store.As[S](now)
			if err != nil {
				return true, nil
			}
			return fn(o, n), nil
		})
	}
}

// IfSpecChanged restricts the modifications of a watch to those of the spec (metadata.generation, where the kind has
// one), the labels and owners, and to the beginning of a deletion and the replacement by another object of the name.
func IfSpecChanged() WatchOption {
	return func(w *watch) {
		w.changes = append(w.changes, func(old, now *cache.Record) (bool, error) {
			return factsOf(old).differs(factsOf(now)) || !slices.Equal(old.Owners(), now.Owners()) ||
				!maps.Equal(maps.Collect(old.AllLabels()), maps.Collect(now.AllLabels())), nil
		})
	}
}

// Owns has a controller reconcile an object when one that it owns (a controller reference, see [Own]) changes.
// client.OwnedBy lists what an object owns.
func Owns[S any, PS client.ObjectOf[S]](opts ...WatchOption) Option {
	return func(s *settings) {
		s.watches = append(s.watches, newWatch[S, PS](ownerOf, opts))
	}
}

// Watches has a controller reconcile the objects that fn names when an object of another kind changes. fn is called
// with the state before a change, too, so that an object that is referred to no more is reconciled as well; after a
// deletion it is called with the last known state. It must depend on the object alone, which is READ-ONLY.
func Watches[S any, PS client.ObjectOf[S]](fn func(obj *S) []Key, opts ...WatchOption) Option {
	return func(s *settings) {
		w := newWatch[S, PS](mappedBy(fn), opts)
		w.function("Watches", reflect.TypeFor[S](), fn == nil)
		s.watches = append(s.watches, w)
	}
}

func mappedBy[S any](fn func(obj *S) []Key) func(*cache.Record, primary) ([]Key, error) {
	return func(r *cache.Record, _ primary) ([]Key, error) {
		obj, err := store.As[S](r)
		if err != nil {
			return nil, err
		}
		return fn(obj), nil
	}
}

func newWatch[S any, PS client.ObjectOf[S]](mapped func(*cache.Record, primary) ([]Key, error),
	opts []WatchOption,
) *watch {
	w := &watch{object: PS(new(S)), mapped: mapped}
	for _, o := range opts {
		if o != nil {
			o(w)
		}
	}
	return w
}

// ownerOf maps an object to its controller, if that is of the kind of the primary.
func ownerOf(r *cache.Record, p primary) ([]Key, error) {
	o, ok := r.Controller()
	if !ok || o.Kind != p.kind.Kind {
		return nil, nil
	}
	if gv, err := schema.ParseGroupVersion(o.APIVersion); err != nil || gv.Group != p.kind.Group {
		return nil, nil
	}
	k := Key{Name: o.Name}
	if p.namespaced {
		k.Namespace = r.Namespace()
	}
	return []Key{k}, nil
}

// resolve finds the kind of a watch.
func (w *watch) resolve(scheme *runtime.Scheme) error {
	kind, err := w.kindIn(scheme)
	if err != nil {
		return err
	}
	w.kind = kind
	if w.name == "" {
		w.name = w.kind.Kind
	}
	return nil
}

// kindIn returns the kind of the objects.
func (w *watch) kindIn(scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	if !w.kind.Empty() {
		return w.kind, nil
	}
	switch w.object.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return w.kind, fmt.Errorf("%w: a watch of %T needs its Kind", ErrInvalid, w.object)
	}
	kinds, _, err := scheme.ObjectKinds(w.object)
	if err != nil {
		return w.kind, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return kinds[0], nil
}

func (w *watch) open(c *cache.Cache) (*cache.Handle, error) { return c.Open(w.request()) }

// request is for no more than the metadata of objects if that is all that anybody looks at.
func (w *watch) request() store.Request {
	_, generic := w.object.(runtime.Unstructured)
	more := func(t reflect.Type) bool { return t != reflect.TypeFor[metav1.PartialObjectMetadata]() }
	bare := !more(reflect.TypeOf(w.object).Elem()) && !slices.ContainsFunc(w.takes, more)
	options := w.options
	if w.everySlot {
		options = append(options[:len(options):len(options)], cache.EverySlot())
	}
	return store.Request{Kind: w.kind, Unstructured: generic, Options: options, Content: cache.Content{Metadata: bare}}
}

// matches says whether an object is among those that are watched.
func (w *watch) matches(r *cache.Record) (ok bool, err error) {
	return guard(func() (bool, error) {
		for _, f := range w.filters {
			if ok, err := f(r); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// concerns says whether a change matters.
func (w *watch) concerns(old, now *cache.Record) (ok bool, err error) {
	return guard(func() (bool, error) {
		for _, f := range w.changes {
			if ok, err := f(old, now); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// keys returns the primaries that an object concerns.
func (w *watch) keys(r *cache.Record, p primary) (keys []Key, err error) {
	if w.mapped == nil {
		return []Key{r.Key()}, nil
	}
	return guard(func() ([]Key, error) { return w.mapped(r, p) })
}
