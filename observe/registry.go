package observe

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Stores opens the store of a resource, shared with everybody who opens the same. A *cache.Cache is one.
type Stores interface {
	Open(store.Request) (*cache.Handle, error)
}

// RegistryOptions configure a Registry. Stores is required.
type RegistryOptions struct {
	// Cluster is the name of the cluster, for descriptions, where there are several.
	Cluster string
	// Scheme knows the types that are observed; that of client-go by default.
	Scheme *runtime.Scheme
	// Stores gives the stores of sources that are observed.
	Stores Stores
	// Shards says which of the objects this process works on, where replicas share them; nil: on all.
	Shards Shards
	// Logger gets a line for every event that was given up and every observer that was stopped. Default: discarded.
	Logger *slog.Logger
	// Degraded lets the other sources run when one cannot be started, which is tried again with back-off; otherwise
	// Start fails and stops all of them.
	Degraded bool
	// Grace is how long Stop waits for handlers whose context has been cancelled. Default: 10 seconds.
	Grace time.Duration
	// DetectMutation has each object looked at again, and its prior state, when its observer returns: a store with the
	// option of that name, as those of derived sources are given, reports at once that it was changed, with the name of
	// the observer.
	DetectMutation bool
}

const defaultGrace = 10 * time.Second

// Registry holds what was declared and, between Start and Stop, runs it. It can be started once. It is safe for
// concurrent use.
type Registry struct {
	opts RegistryOptions
	log  *slog.Logger
	gate *gate // nil: it works on everything

	mu        sync.Mutex // never held while user code runs
	origins   []*Origin
	observers []*Observer
	leaving   []*Observer   // removed while a call was under way
	mistakes  []error       // in sources that were declared while it ran
	run       *running      // from Start to Stop
	stopping  *running      // from Stop on
	stopped   chan struct{} // closed by Stop
	ended     bool
}

// NewRegistry returns an empty registry.
func NewRegistry(o RegistryOptions) *Registry {
	r := &Registry{opts: o, log: o.Logger, gate: newGate(o.Shards), stopped: make(chan struct{})}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.opts.Scheme == nil {
		r.opts.Scheme = scheme.Scheme
	}
	if r.opts.Grace <= 0 {
		r.opts.Grace = defaultGrace
	}
	return r
}

// Observers returns the registry itself, which makes it a Host.
func (r *Registry) Observers() *Registry { return r }

var (
	metadataType     = reflect.TypeFor[metav1.PartialObjectMetadata]()
	unstructuredType = reflect.TypeFor[unstructured.Unstructured]()
)

func (r *Registry) declareOrigin(o *Origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.origins = append(r.origins, o)
	if r.run == nil {
		return
	}
	if errs := r.checkOrigin(o); len(errs) > 0 { // it concerns this source only
		r.origins = slices.Delete(r.origins, len(r.origins)-1, len(r.origins))
		r.log.ErrorContext(r.run.ctx, "cannot declare source", "selector", o.selector.String(), "error", errors.Join(errs...))
		r.mistakes = append(r.mistakes, errs...)
		return
	}
	for _, waiting := range slices.Clone(r.observers) { // some may have been waiting for it
		if waiting.root == nil && r.origin(waiting.selector) != nil {
			r.attachLate(waiting)
		}
	}
}

func (r *Registry) declareObserver(o *Observer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observers = append(r.observers, o)
	if r.run != nil {
		o.late = true
		r.attachLate(o)
	}
}

// attachLate is attach for what is declared while running: a mistake concerns it only, and is reported where errors of
// observers are. The caller holds the lock.
func (r *Registry) attachLate(o *Observer) {
	if err := r.checkObserver(o); err != nil {
		r.log.ErrorContext(r.run.ctx, "cannot start observer", "observer", o.Name(), "error", err)
		return
	}
	r.attach(o)
}

// Mistakes returns what is wrong with what was declared while it ran, joined: it was logged, and nothing of it runs. An
// observer that still waits for its source is among them.
func (r *Registry) Mistakes() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := slices.Clone(r.mistakes)
	for _, o := range r.observers {
		if o.late && o.root == nil && o.derived == nil {
			errs = append(errs, r.checkObserver(o))
		}
	}
	return errors.Join(errs...)
}

// Check returns everything that is wrong with the declarations, joined; nil if they can be started.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.check()
}

func (r *Registry) check() error {
	var errs []error
	for _, o := range r.origins {
		errs = append(errs, r.checkOrigin(o)...)
	}
	for _, o := range r.observers {
		errs = append(errs, r.checkObserver(o))
	}
	return errors.Join(errs...)
}

// checkOrigin is called with the lock held.
func (r *Registry) checkOrigin(o *Origin) (errs []error) {
	mistake := func(err error) {
		errs = append(errs, &declarationError{What: "source", Selector: o.selector, Place: o.place, Err: err})
	}
	if o.selector == "" {
		mistake(errEmptySelector)
	}
	if o.nilFunc {
		mistake(errNilFunction)
	}
	if first := r.origin(o.selector); first != o {
		mistake(fmt.Errorf("%w: %s", ErrDuplicateSource, first.place))
	}
	if o.object != nil && o.kind.Empty() && o.derive == nil {
		if _, err := r.kindOf(o.object); err != nil {
			mistake(err)
		}
	}
	if err := o.settings.check(); err != nil {
		mistake(err)
	}
	if r.reaches(o, o, nil) {
		mistake(errCycle)
		return errs
	}
	for _, in := range o.inputs {
		if err := r.checkPair(in.selector, in.takes); err != nil {
			mistake(err)
		}
	}
	return errs
}

// reaches says whether from is derived from target.
func (r *Registry) reaches(from, target *Origin, seen []*Origin) bool {
	for _, in := range from.inputs {
		o := r.origin(in.selector)
		if o == nil || slices.Contains(seen, o) {
			continue
		}
		if o == target || r.reaches(o, target, append(seen, o)) {
			return true
		}
	}
	return false
}

// checkObserver is called with the lock held.
func (r *Registry) checkObserver(o *Observer) error {
	var errs []error
	mistake := func(err error) {
		errs = append(errs, &declarationError{What: "observer", Selector: o.selector, Place: o.place, Err: err})
	}
	if o.call == nil {
		mistake(errNilFunction)
	}
	if err := r.checkPair(o.selector, o.object); err != nil {
		mistake(err)
	}
	return errors.Join(errs...)
}

// checkPair says why somebody who takes this type cannot observe a selector. A nil type takes anything.
func (r *Registry) checkPair(s Selector, takes reflect.Type) error {
	if s == "" {
		return errEmptySelector
	}
	o := r.origin(s)
	if o == nil {
		return fmt.Errorf("%w%s", ErrNoSource, r.similar(s))
	}
	root, _ := r.resolve(o)
	if root == nil || takes == nil || takes == root.object || takes == metadataType || takes == unstructuredType {
		return nil // a filter of nothing is reported where it is declared
	}
	return fmt.Errorf("%w: it takes %v, and the source at %s delivers %v", errTypeMismatch, takes, root.place, root.object)
}

// similar names a source that shares a member with a selector that has no source.
func (r *Registry) similar(s Selector) string {
	for _, other := range r.origins {
		for _, name := range other.selector.Names() {
			if slices.Contains(s.Names(), name) {
				return fmt.Sprintf("; the source at %s is for %q, which is another set", other.place, other.selector)
			}
		}
	}
	return ""
}

// origin returns the first source of a selector, nil if there is none. It is called with the lock held.
func (r *Registry) origin(s Selector) *Origin {
	for _, o := range r.origins {
		if o.selector == s {
			return o
		}
	}
	return nil
}

// resolve follows filters to the source that they filter, nil if there is none; filter is all of them together, nil
// without. It is called with the lock held.
func (r *Registry) resolve(o *Origin) (root *Origin, filter func(*cache.Record) bool) {
	for range r.origins { // a cycle has no more steps than there are sources
		if o == nil || o.filter == nil {
			return o, filter
		}
		filter = both(o.filter, filter)
		o = r.origin(o.inputs[0].selector)
	}
	return nil, nil
}

func both(first, second func(*cache.Record) bool) func(*cache.Record) bool {
	if second == nil {
		return first
	}
	return func(r *cache.Record) bool { return first(r) && second(r) }
}

// kindOf returns what the scheme calls a Go type.
func (r *Registry) kindOf(object reflect.Type) (schema.GroupVersionKind, error) {
	obj, ok := reflect.New(object).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v is not an object", errUnknownType, object)
	}
	kinds, _, err := r.opts.Scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v", errUnknownType, object)
	}
	return kinds[0], nil
}

// wanted says whether anybody takes the objects of a source as this type. The lock is held.
func (r *Registry) wanted(s Selector, object reflect.Type) bool {
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return o.selector == s && o.object == object })
}
