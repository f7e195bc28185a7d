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
	"github.com/fairlead-io/fairlead/shard"
)

// Stores opens the store of a resource. Callers with equal requests share the store. *cache.Cache implements Stores.
type Stores interface {
	Open(store.Request) (*cache.Handle, error)
}

// RegistryOptions configure a Registry. Stores is required.
type RegistryOptions struct {
	// Cluster is the name of the cluster in descriptions, if there are several.
	Cluster string
	// Scheme contains the types of the observed objects. Default: the scheme of client-go.
	Scheme *runtime.Scheme
	// Stores opens the stores of observed sources.
	Stores Stores
	// Shards selects the objects that this process works on if replicas share the objects. The registry is a participant
	// of the group; it gains slots before the sources and loses them after. nil means all objects.
	Shards shard.Membership
	// Logger receives a line for every event given up and every observer stopped. Default: discarded.
	Logger *slog.Logger
	// Degraded lets the other sources run if one cannot start; the registry retries with back-off. Otherwise Start
	// stops all sources and fails.
	Degraded bool
	// Grace bounds how long Stop waits for handlers whose context has been cancelled. Default: 10 seconds.
	Grace time.Duration
	// DetectMutation checks each object and its prior state when the observer returns. If the store has the option of
	// that name, a modification is reported at once, with the name of the observer. The stores of derived sources get
	// the option from here.
	DetectMutation bool
}

const defaultGrace = 10 * time.Second

// Registry holds the declarations and runs them between Start and Stop. It can be started once. It is safe for
// concurrent use.
type Registry struct {
	opts RegistryOptions
	log  *slog.Logger
	gate *gate // nil: no sharding

	mu        sync.Mutex // never held while user code runs
	origins   []*Origin
	observers []*Observer
	leaving   []*Observer   // removed during a call
	mistakes  []error       // mistakes in sources declared during the run
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

// Observers returns the registry itself. It makes a Registry a Host.
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
	if errs := r.checkOrigin(o); len(errs) > 0 { // the mistakes concern this source only
		r.origins = slices.Delete(r.origins, len(r.origins)-1, len(r.origins))
		r.log.ErrorContext(r.run.ctx, "cannot declare source", "selector", o.selector.String(), "error", errors.Join(errs...))
		r.mistakes = append(r.mistakes, errs...)
		return
	}
	for _, waiting := range slices.Clone(r.observers) { // some may have waited for this source
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

// attachLate is attach for a declaration during the run. A mistake concerns only the new observer; it is logged like
// the errors of observers. The caller holds the lock.
func (r *Registry) attachLate(o *Observer) {
	if err := r.checkObserver(o); err != nil {
		r.log.ErrorContext(r.run.ctx, "cannot start observer", "observer", o.Name(), "error", err)
		return
	}
	r.attach(o)
}

// Mistakes returns the mistakes in declarations made during the run, joined. They were logged, and these declarations
// do not run. An observer that still waits for its source is included.
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

// Check returns all mistakes in the declarations, joined, or nil if they can be started.
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

// checkOrigin requires the lock.
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

// reaches reports whether from is derived from target.
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

// checkObserver requires the lock.
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

// checkPair returns the reason why an observer of this type cannot observe a selector. A nil type takes any objects.
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
		return nil // a filter without a source is reported at its own declaration
	}
	return fmt.Errorf("%w: it takes %v, and the source at %s delivers %v", errTypeMismatch, takes, root.place, root.object)
}

// similar returns the name of a source that shares a member with a selector without a source.
func (r *Registry) similar(s Selector) string {
	for _, other := range r.origins {
		for _, name := range other.selector.names() {
			if slices.Contains(s.names(), name) {
				return fmt.Sprintf("; the source at %s is for %q, which is another set", other.place, other.selector)
			}
		}
	}
	return ""
}

// origin returns the first source of a selector, or nil. It requires the lock.
func (r *Registry) origin(s Selector) *Origin {
	for _, o := range r.origins {
		if o.selector == s {
			return o
		}
	}
	return nil
}

// resolve follows filters to their source. It returns nil if there is none. filter combines all filters; nil means no
// filter. It requires the lock.
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

// kindOf returns the kind that the scheme assigns to a Go type.
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

// wanted reports whether an observer takes the objects of a source as this type. It requires the lock.
func (r *Registry) wanted(s Selector, object reflect.Type) bool {
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return o.selector == s && o.object == object })
}
