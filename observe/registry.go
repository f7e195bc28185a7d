package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

var _ group.Participant = (*Registry)(nil)

// Stores opens the store of a resource. Callers with equal requests share the store. *cache.Cache implements Stores.
type Stores interface {
	Open(store.Request) (*cache.Handle, error)
}

// expecting is an optional interface of Stores. *cache.Cache implements it.
type expecting interface{ Expect(store.Request) }

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
	// Degraded lets the other sources run if one cannot start; the registry retries with back-off. Otherwise, and after a
	// mistake in the options of a source, Start stops all sources and fails.
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

	mu       sync.Mutex // never held while user code runs
	declared declarations
	mistakes []error       // mistakes in sources declared during the run
	run      *running      // from Start on
	stopped  chan struct{} // closed by Stop
	ended    bool
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
	r.declared.scheme = r.opts.Scheme
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
	r.declared.origins = append(r.declared.origins, o)
	if !r.running() {
		return
	}
	if errs := checkOrigin(&r.declared, o); len(errs) > 0 { // the mistakes concern this source only
		r.declared.origins = slices.Delete(r.declared.origins, len(r.declared.origins)-1, len(r.declared.origins))
		r.log.ErrorContext(r.run.ctx, "cannot declare source", "selector", o.selector.String(), "error", errors.Join(errs...))
		r.mistakes = append(r.mistakes, errs...)
		return
	}
	for _, waiting := range slices.Clone(r.declared.observers) { // some may have waited for this source
		if waiting.root == nil && r.declared.origin(waiting.selector) != nil {
			r.attachLate(waiting)
		}
	}
}

func (r *Registry) declareObserver(o *Observer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.declared.observers = append(r.declared.observers, o)
	if r.running() {
		o.late = true
		r.attachLate(o)
	}
}

// attachLate is attach for a declaration during the run. A mistake concerns only the new observer; it is logged like
// the errors of observers. The caller holds the lock.
func (r *Registry) attachLate(o *Observer) {
	if err := checkObserver(&r.declared, o); err != nil {
		r.log.ErrorContext(r.run.ctx, "cannot start observer", "observer", o.Name(), "error", err)
		return
	}
	r.run.attach(o)
}

// Mistakes returns the mistakes in declarations made during the run, joined. They were logged, and these declarations
// do not run. An observer that still waits for its source is included.
func (r *Registry) Mistakes() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := slices.Clone(r.mistakes)
	for _, o := range r.declared.observers {
		if o.late && o.root == nil && o.derived == nil {
			errs = append(errs, checkObserver(&r.declared, o))
		}
	}
	return errors.Join(errs...)
}

// Check returns all mistakes in the declarations, joined, or nil if they can be started.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return check(&r.declared)
}

// Start checks the declarations, then starts all observed sources concurrently, and their observers. It returns when
// they have started, not when they are synced; see WaitSynced. On an error it stops all of them. The error joins the
// errors of the sources in the order of declaration, or is the cause of ctx if there are none. ctx bounds only the
// start; Stop ends the run.
func (r *Registry) Start(ctx context.Context) error {
	run, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("cannot start observers: %w", err)
	}
	release := context.AfterFunc(ctx, func() { run.cancel(context.Cause(ctx)) })
	<-run.tried
	release()

	var errs []error
	r.mu.Lock()
	if r.ended {
		errs = append(errs, ErrStopped)
	}
	var ended error
	if ctx.Err() != nil {
		ended = context.Cause(ctx)
	}
	failed := r.declared.openErrors(ended)
	if r.opts.Degraded {
		failed = slices.DeleteFunc(failed, func(err error) bool { return !isMistake(err) })
	}
	if errs = append(errs, failed...); len(failed) == 0 { // otherwise the end of ctx was not the only reason
		errs = append(errs, ended)
	}
	r.mu.Unlock()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	now, cancel := context.WithCancel(ctx)
	cancel()
	return fmt.Errorf("cannot start observers: %w", errors.Join(append(errs, r.Stop(now))...))
}

// begin attaches all observers, which opens their sources.
func (r *Registry) begin(ctx context.Context) (*running, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return nil, ErrStopped
	case r.run != nil:
		return nil, errStarted
	}
	if err := check(&r.declared); err != nil {
		return nil, err
	}
	r.run = &running{
		declared: &r.declared, mu: &r.mu, gate: r.gate, degraded: r.opts.Degraded, log: r.log, open: r.open,
	}
	var expect func(store.Request)
	if stores, ok := r.opts.Stores.(expecting); ok {
		expect = stores.Expect
	}
	r.run.begin(ctx, expect)
	return r.run, nil
}

// running reports whether declarations take effect at once. It requires the lock.
func (r *Registry) running() bool { return r.run != nil && !r.ended }

// open opens a source. It runs user code, so it needs no lock.
func (r *Registry) open(ctx context.Context, o *Origin) (*feed, error) {
	return o.openFeed(ctx, func(options []cache.Option) (*cache.Handle, error) {
		r.mu.Lock()
		request, err := r.declared.request(o, options)
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return r.opts.Stores.Open(request)
	})
}

// feedsOf returns the open feeds of a source and its twin.
func (r *Registry) feedsOf(o *Origin) []*feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return o.feeds()
}

// derivedHost returns what a derived source needs of the registry.
func (r *Registry) derivedHost(o *Origin) derivedHost {
	kind, _ := r.declared.kindOf(o.object) // the program's own type may have none
	return derivedHost{
		origin: o,
		store: store.Options{
			Resource: schema.GroupVersionResource{Resource: o.selector.String()}, Kind: kind, Namespaced: true,
			Scheme: r.opts.Scheme, Logger: r.log, DetectMutation: r.opts.DetectMutation,
		},
		observe: func(in input, call func(context.Context, *store.Event) error) *Observer {
			by := &Observer{
				selector: in.selector, object: in.takes, place: o.place, registry: r, log: r.log, opts: newOptions(nil),
				derived: o, call: call,
			}
			by.opts.name, by.opts.failure = fmt.Sprintf("derived source %q", o.selector), Skip
			return by
		},
		declare: r.declareObserver,
	}
}

// Stop ends all observers and sources and waits until they have stopped. Running handlers continue until they return or
// drain ends. Then Stop cancels their context with the cause ErrStopped, and they have the grace of the options to
// return. The error names handlers that do not return. With several calls, the shortest drain applies.
func (r *Registry) Stop(drain context.Context) error {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.stopped)
		if r.run != nil {
			r.run.end()
		}
	}
	run := r.run
	r.mu.Unlock()
	if run == nil {
		return nil
	}
	var err error
	if !run.stop(drain, r.opts.Grace) {
		r.mu.Lock()
		err = fmt.Errorf("cannot stop observers: still running after %v: %s", r.opts.Grace, working(&r.declared))
		r.mu.Unlock()
	}
	run.closeFeeds()
	return err
}

// remove withdraws an observer.
func (r *Registry) remove(o *Observer) {
	r.mu.Lock()
	f, attached := r.declared.remove(o)
	r.mu.Unlock()
	if attached {
		o.feed.Store(nil)
	}
	if f != nil {
		f.close()
	}
}

// stop ends an observer according to its failure policy. The description still contains it.
func (r *Registry) stop(o *Observer, err error) {
	r.mu.Lock()
	f := r.declared.stop(o, err)
	r.mu.Unlock()
	if f != nil {
		f.close()
	}
}

// WaitSynced waits until every observer has handled its initial objects. The error names those that have not, with the
// reasons. WaitSynced does not wait for removed observers. An observer that its failure policy stopped before is an
// error.
func (r *Registry) WaitSynced(ctx context.Context) error {
	r.mu.Lock()
	observers := slices.Clone(r.declared.observers)
	r.mu.Unlock()
	for i, o := range observers {
		if o.synced.happened() {
			continue
		}
		select {
		case <-o.synced.done():
		case <-o.gone.done():
			if cause := r.failureOf(o); cause != nil {
				return fmt.Errorf("observer stopped before it was synced: %s: %w", o.describe(), cause)
			}
		case <-r.stopped:
			return fmt.Errorf("%w: not synced: %s", ErrStopped, r.missing(observers[i:]))
		case <-ctx.Done():
			return fmt.Errorf("%w: not synced: %s", context.Cause(ctx), r.missing(observers[i:]))
		}
	}
	return nil
}

func (r *Registry) failureOf(o *Observer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return o.failure
}

func (r *Registry) missing(observers []*Observer) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(unsynced(&r.declared, observers), "; ")
}

// Unsynced names the observers that have not handled their initial objects, with the reasons.
func (r *Registry) Unsynced() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return unsynced(&r.declared, r.declared.observers)
}

// Rights returns the permissions that the declared sources need: to list and watch their kinds. It omits types that the
// scheme does not know; Check reports those.
func (r *Registry) Rights() []rights.Right {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.declared.rights()
}

// Gain implements [group.Participant].
func (r *Registry) Gain(_ context.Context, slots shard.Set) error { return r.gate.gain(slots) }

// Lose implements [group.Participant]. Calls in progress finish; when ctx ends, their contexts are cancelled. Lose does
// not wait until observers have received Left.
func (r *Registry) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	r.gate.lose(ctx, slots, quiet)
}

// Describe returns the declarations with their current state.
func (r *Registry) Describe() inspect.Sources {
	r.mu.Lock()
	s := snapshotOf(&r.declared)
	r.mu.Unlock()
	return s.describe(r.opts.Cluster)
}

// DescribeOthers describes stores that do not belong to sources of the registry, such as those of reconcilers and
// clients. It skips stores of its own sources. The selector is the resource and its selection, and At is empty. A scope
// that was never confirmed is as stale as its phase is old.
func (r *Registry) DescribeOthers(stores []*cache.Store) []inspect.Source {
	r.mu.Lock()
	own := r.declared.stores()
	r.mu.Unlock()
	return describeOthers(r.opts.Cluster, stores, own)
}

// Collector returns metrics of every observer (labels selector and observer):
//
//	fairlead_observer_events_total     handled events
//	fairlead_observer_failures_total   events given up
//	fairlead_observer_retries_total    failed calls that were repeated
//	fairlead_observer_busy_seconds_total
//	fairlead_observer_lag              events, or keys, not delivered yet
//
// and of every watched source (label selector, most of them also namespace):
//
//	fairlead_source_objects            known objects
//	fairlead_source_running            1 if it has an observer and has started
//	fairlead_source_watching           1 while changes arrive
//	fairlead_source_staleness_seconds  time since the known state was last confirmed
//	fairlead_source_lists_total        complete lists applied
//	fairlead_source_changes_total      changes received
//	fairlead_source_quarantined_total  objects that could not be read
func (r *Registry) Collector() prometheus.Collector { return newCollector(r.Describe) }
