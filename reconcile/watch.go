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
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// watch declares a kind of objects whose events lead to reconciliations.
type watch struct {
	place   string // file:line of the option that declares it; "": that of the controller
	name    string
	object  client.Object // its Go type; determines the kind
	kind    schema.GroupVersionKind
	options []cache.Option
	filters []func(*cache.Record) (bool, error)
	changes []func(old, now *cache.Record) (bool, error)
	// mapped returns the keys of the primaries that an object concerns. If nil, the object is the primary.
	mapped   func(r *cache.Record, p primary) ([]Key, error)
	types    []ReasonType                     // of the events that count; empty: all
	anyOwner bool                             // see AnyOwner
	rank     func(*cache.Record) (int, error) // see Priority; nil: none
	optional bool                             // see Optional
	owned    bool                             // declared with Owns
	// sameNamespace means that the objects are in the namespaces of the primaries; see Controller.SetNamespaces.
	sameNamespace bool
	everySlot     bool           // hold the objects of every slot, even if replicas share them
	takes         []reflect.Type // parameter types of the user's functions
	errs          []error        // errors of the declaration
}

// function records the parameter type of a user's function.
func (w *watch) function(option string, takes reflect.Type, isNil bool) {
	if isNil {
		w.errs = append(w.errs, fmt.Errorf("%w: the function of %s is nil", ErrInvalid, option))
	}
	w.takes = append(w.takes, takes)
}

// at adds the place of the watch to an error of its declaration.
func (w *watch) at(err error) error {
	if err == nil || w.place == "" {
		return err
	}
	return fmt.Errorf("the watch declared at %s: %w", w.place, err)
}

// check returns the errors of the declaration. A function must take the Go type of the watch, or a generic type.
func (w *watch) check() error {
	errs := slices.Clone(w.errs)
	for _, err := range []error{source.CheckSelectors(w.options), source.CheckNamespaces(w.options)} {
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrInvalid, err))
		}
	}
	object := reflect.TypeOf(w.object).Elem()
	for _, t := range w.takes {
		if t != object && !readsAny(t) && !readsAny(object) {
			errs = append(errs, fmt.Errorf("%w: a function takes %v, and the objects of the watch are %v", ErrInvalid, t,
				object))
		}
	}
	return w.at(errors.Join(errs...))
}

// declaredAt returns the place of a declaration.
func declaredAt() string {
	return place.Outside("github.com/fairlead-io/fairlead/reconcile", "github.com/fairlead-io/fairlead/dependent")
}

func readsAny(t reflect.Type) bool {
	return t == reflect.TypeFor[metav1.PartialObjectMetadata]() || t == reflect.TypeFor[unstructured.Unstructured]()
}

// primary describes the reconciled kind for mappings.
type primary struct {
	kind       schema.GroupVersionKind
	namespaced bool
}

// WatchOption configures one watch.
type WatchOption func(*watch)

// Named sets the name of a watch in reasons and errors; the default is its kind.
func Named(name string) WatchOption { return func(w *watch) { w.name = name } }

// Kind sets the kind of a watch of unstructured.Unstructured or metav1.PartialObjectMetadata.
//
// A watch of PartialObjectMetadata, with filters and mappings of it, transfers and holds only metadata. This does not
// apply if another watch in the program holds the whole objects. Otherwise the client reads whole objects of the kind
// from the server.
func Kind(gvk schema.GroupVersionKind) WatchOption { return func(w *watch) { w.kind = gvk } }

// From restricts the watched objects, with cache.Namespaces, cache.Labels and similar options. The cache then answers
// the client's reads of the kind only if it holds every object that the read may return. Other reads are requests.
//
// With cache.Labels("app=web"), the cache answers a Get of an object that has the label. It also answers a List with
// client.Labels("app=web") or a narrower selector. With cache.Namespaces, it answers all reads in these namespaces.
// With cache.Fields, it answers a Get of a selected object, if the selector uses fields of a built-in kind or those of
// cache.CacheOptions.Fields.
//
// If another watch of the kind in the program holds more, the cache answers more.
func From(opts ...cache.Option) WatchOption {
	return func(w *watch) { w.options = append(w.options, opts...) }
}

// If restricts a watch to the objects for which fn returns true. When the result changes, the object counts as added or
// deleted. fn must depend only on the object, which is READ-ONLY.
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

// Labeled restricts a watch to the objects that have a label, with any value. Unlike If, it decodes no objects.
func Labeled(key string) WatchOption {
	return func(w *watch) {
		w.filters = append(w.filters, func(r *cache.Record) (bool, error) {
			_, ok := r.Label(key)
			return ok, nil
		})
	}
}

// IfChanged restricts the modifications of a watch to those for which fn returns true. Both states are READ-ONLY. old
// is the state that this controller last received.
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

// IfSpecChanged restricts the modifications of a watch to changes of the spec (metadata.generation, where the kind has
// one), the labels and the owners. The start of a deletion and the replacement by a new object of the same name also
// count.
func IfSpecChanged() WatchOption {
	return func(w *watch) {
		w.changes = append(w.changes, func(old, now *cache.Record) (bool, error) {
			return factsOf(old).differs(factsOf(now)) || !slices.Equal(old.Owners(), now.Owners()) ||
				!maps.Equal(maps.Collect(old.AllLabels()), maps.Collect(now.AllLabels())), nil
		})
	}
}

// Optional lets the controller run although the API server does not serve the kind of a watch, for example because its
// CustomResourceDefinition is not installed. The controller works without a watch of [Owns] or [Watches], and opens it
// when the kind is served. It then reconciles all its objects if the watch is one of Owns, since they may lack such an
// object. With [Primary] the controller waits for its kind; other parts of the program run, and the program is ready.
// The controller asks again after 1 s, 2 s and so on, up to 10 s. Other failures of a watch are as without Optional.
// For the node of a graph use the option Optional of package dependent.
func Optional() WatchOption { return func(w *watch) { w.optional = true } }

// Only restricts a watch to events of these types: [Added], [Modified], [Deleted] and [Initial]. Objects that existed
// when the controller started are Initial. The controller also reconciles all its objects at the [MaxInterval]. The
// deletion of a reconciled object always counts, and so does its beginning.
func Only(types ...ReasonType) WatchOption {
	return func(w *watch) {
		w.types = append(w.types, types...)
		for _, t := range types {
			if !slices.Contains([]ReasonType{Initial, Added, Modified, Deleted}, t) {
				w.errs = append(w.errs, fmt.Errorf("%w: Only takes Initial, Added, Modified and Deleted, not %q", ErrInvalid, t))
			}
		}
	}
}

// ignores reports whether events of a type do not count.
func (w *watch) ignores(t ReasonType) bool {
	return len(w.types) > 0 && t != Interval && !slices.Contains(w.types, t)
}

// AnyOwner makes a watch of [Owns] follow every owner reference of an object, not only that of the controller. An
// object with several owners of the kind leads to a reconciliation of each.
func AnyOwner() WatchOption { return func(w *watch) { w.anyOwner = true } }

// Owns makes the controller reconcile an object when an object that it owns changes. The owner is the controller
// reference, see [Own]. client.OwnedBy lists the objects that an object owns.
func Owns[S any, PS client.ObjectOf[S]](opts ...WatchOption) Option {
	at := declaredAt()
	return func(s *settings) {
		w := newWatch[S, PS](ownerOf, opts)
		w.place = at
		w.sameNamespace, w.owned = true, true
		if w.anyOwner {
			w.mapped = ownersOf
		}
		s.watches = append(s.watches, w)
	}
}

// Watches makes the controller reconcile the objects that fn returns when an object of another kind changes. fn also
// receives the state before the change. So objects that are no longer referenced are reconciled, too. After a deletion
// fn receives the last known state. It must depend only on the object, which is READ-ONLY.
func Watches[S any, PS client.ObjectOf[S]](fn func(obj *S) []Key, opts ...WatchOption) Option {
	at := declaredAt()
	return func(s *settings) {
		w := newWatch[S, PS](mappedBy(fn), opts)
		w.place = at
		w.function("Watches", reflect.TypeFor[S](), fn == nil)
		if w.anyOwner {
			w.errs = append(w.errs, fmt.Errorf("%w: AnyOwner is an option of Owns", ErrInvalid))
		}
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

// ownerOf maps an object to its controller, if that has the kind of the primary.
func ownerOf(r *cache.Record, p primary) ([]Key, error) {
	if o, ok := r.Controller(); ok && p.is(o) {
		return []Key{p.key(o, r)}, nil
	}
	return nil, nil
}

// ownersOf maps an object to its owners of the kind of the primary.
func ownersOf(r *cache.Record, p primary) (all []Key, _ error) {
	for _, o := range r.Owners() {
		if p.is(o) {
			all = append(all, p.key(o, r))
		}
	}
	return all, nil
}

// is reports whether an owner has the kind of the primary.
func (p primary) is(o store.Owner) bool {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	return err == nil && o.Kind == p.kind.Kind && gv.Group == p.kind.Group
}

// key returns the key of an owner of an object.
func (p primary) key(o store.Owner, owned *cache.Record) Key {
	k := Key{Name: o.Name}
	if p.namespaced {
		k.Namespace = owned.Namespace()
	}
	return k
}

// resolve sets the kind and the default name of a watch.
func (w *watch) resolve(scheme *runtime.Scheme) error {
	kind, err := w.kindIn(scheme)
	if err != nil {
		return w.at(err)
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

func (w *watch) open(c *cache.Cache, options ...cache.Option) (*cache.Handle, error) {
	req := w.request()
	req.Options = append(req.Options[:len(req.Options):len(req.Options)], options...)
	return c.Open(req)
}

// request asks only for metadata if the watch and all of its functions use PartialObjectMetadata.
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

// matches reports whether an object passes the filters.
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

// selects reports whether an object passes the filters. The store may hold more objects. A filter that fails excludes
// the object.
func (w *watch) selects(r *cache.Record) bool {
	ok, err := w.matches(r)
	return ok && err == nil
}

// concerns reports whether a change matters.
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
