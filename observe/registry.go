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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// Stores opens the store of a resource, shared with everybody who opens the same. A *store.Cache is one.
type Stores interface {
	Open(store.Request) (*store.Handle, error)
}

// RegistryOptions configure a Registry. Scheme and Stores are required.
type RegistryOptions struct {
	// Scheme knows the types that are observed.
	Scheme *runtime.Scheme
	// Stores gives the stores of sources that are observed.
	Stores Stores
	// Logger gets a line for every event that was given up and every observer that was stopped. Default: discarded.
	Logger *slog.Logger
	// Degraded lets the other sources run when one cannot be started; otherwise Start fails and stops all of them.
	Degraded bool
}

// Registry holds what was declared and, between Start and Stop, runs it. It is safe for concurrent use.
type Registry struct {
	opts RegistryOptions
	log  *slog.Logger

	// starting is held while an observer is begun, so that a source is opened once. It comes before mu.
	starting sync.Mutex

	mu        sync.Mutex
	sources   []*declaredSource
	observers []*Observer
	run       *running // nil while it is not started
}

// declaredSource is one source.
type declaredSource struct {
	selector Selector
	object   reflect.Type
	place    string
	options  func(context.Context) ([]source.Option, error)

	handle *store.Handle // while it is observed; guarded by Registry.mu
	err    error         // why it could not be started; guarded by Registry.mu
}

// running is what lives from Start to Stop.
type running struct {
	ctx    context.Context //nolint:containedctx // it is the lifetime of the run, which callbacks of cursors belong to
	cancel context.CancelCauseFunc
}

// NewRegistry returns an empty registry.
func NewRegistry(o RegistryOptions) *Registry {
	r := &Registry{opts: o, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Observer is a declared observer.
type Observer struct {
	selector Selector
	object   reflect.Type
	place    string
	opts     options
	call     func(context.Context, store.Event) error
	registry *Registry

	delivery *delivery     // while it runs; guarded by Registry.mu
	synced   chan struct{} // closed when it has handled Synced
	stats    stats
}

// Name returns the name of the observer: that of its options, or the place of its declaration.
func (o *Observer) Name() string {
	if o.opts.name != "" {
		return o.opts.name
	}
	return o.place
}

func (r *Registry) declareSource(s *declaredSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, s)
}

func (r *Registry) declareObserver(o *Observer) {
	o.synced = make(chan struct{})
	r.mu.Lock()
	r.observers = append(r.observers, o)
	run := r.run
	r.mu.Unlock()
	if run == nil {
		return
	}
	// While running, a mistake concerns the new observer only; it is reported where errors of observers are.
	if err := r.begin(run, o); err != nil {
		r.log.ErrorContext(run.ctx, "cannot start observer", "observer", o.Name(), "error", err)
	}
}

// Check returns everything that is wrong with the declarations, joined; nil if they can be started.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for i, s := range r.sources {
		mistake := func(err error) {
			errs = append(errs, &DeclarationError{What: "source", Selector: s.selector, Place: s.place, Err: err})
		}
		if s.selector == "" {
			mistake(ErrEmptySelector)
		}
		if s.options == nil {
			mistake(ErrNilFunction)
		}
		if _, err := r.kind(s.object); err != nil {
			mistake(err)
		}
		if first := r.source(s.selector); first != s && slices.Index(r.sources, first) < i {
			mistake(fmt.Errorf("%w: %s", ErrDuplicateSource, first.place))
		}
	}
	for _, o := range r.observers {
		if err := r.checkObserver(o); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkObserver is called with the lock held.
func (r *Registry) checkObserver(o *Observer) error {
	var errs []error
	mistake := func(err error) {
		errs = append(errs, &DeclarationError{What: "observer", Selector: o.selector, Place: o.place, Err: err})
	}
	if o.call == nil {
		mistake(ErrNilFunction)
	}
	switch s := r.source(o.selector); {
	case o.selector == "":
		mistake(ErrEmptySelector)
	case s == nil:
		mistake(fmt.Errorf("%w%s", ErrNoSource, r.similar(o.selector)))
	case o.object != s.object && o.object != metadataType && o.object != unstructuredType:
		mistake(fmt.Errorf("%w: it takes %v, and the source at %s delivers %v", ErrTypeMismatch, o.object, s.place, s.object))
	}
	return errors.Join(errs...)
}

// similar names the sources that share a member with a selector that has no source.
func (r *Registry) similar(s Selector) string {
	for _, other := range r.sources {
		for _, name := range other.selector.Names() {
			if slices.Contains(s.Names(), name) {
				return fmt.Sprintf("; the source at %s is for %q, which is another set", other.place, other.selector)
			}
		}
	}
	return ""
}

// source returns the first source of a selector, nil if there is none. It is called with the lock held.
func (r *Registry) source(s Selector) *declaredSource {
	for _, d := range r.sources {
		if d.selector == s {
			return d
		}
	}
	return nil
}

func (r *Registry) kind(object reflect.Type) (schema.GroupVersionKind, error) {
	obj, ok := reflect.New(object).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v is not an object", ErrUnknownType, object)
	}
	kinds, _, err := r.opts.Scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %v", ErrUnknownType, object)
	}
	return kinds[0], nil
}

// Start checks the declarations and starts every source that is observed, and its observers. It returns when all of them
// have been started, not when they are synced: see WaitSynced. On an error nothing is left running.
func (r *Registry) Start(ctx context.Context) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("cannot start observers: %w", err)
	}
	run := &running{}
	run.ctx, run.cancel = context.WithCancelCause(ctx)
	r.mu.Lock()
	if r.run != nil {
		r.mu.Unlock()
		return errors.New("cannot start observers: they are running")
	}
	r.run = run
	observers := slices.Clone(r.observers)
	for _, s := range r.sources {
		if !slices.ContainsFunc(observers, func(o *Observer) bool { return o.selector == s.selector }) {
			r.log.WarnContext(ctx, "source without an observer is not listed", "selector", s.selector, "at", s.place)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, o := range observers {
		if err := r.begin(run, o); err != nil {
			errs = append(errs, err)
			if !r.opts.Degraded {
				break
			}
			r.log.ErrorContext(ctx, "running without a source", "error", err)
		}
	}
	if len(errs) > 0 && !r.opts.Degraded {
		return errors.Join(append(errs, r.Stop())...)
	}
	return nil
}

// begin starts an observer, and its source if it is the first one.
func (r *Registry) begin(run *running, o *Observer) error {
	r.starting.Lock()
	defer r.starting.Unlock()
	handle, err := r.open(run, o)
	if err != nil {
		return err
	}
	d := &delivery{opts: o.opts, call: o.call}
	d.report = func(out outcome) { r.reported(run.ctx, o, out) }
	wake := func() { d.wake(run.ctx) }
	r.mu.Lock()
	if r.run != run || o.delivery != nil {
		r.mu.Unlock()
		return nil // stopped meanwhile
	}
	d.stream = handle.Subscribe(store.SubscribeOptions{Name: o.Name(), Wake: wake, Resync: o.opts.resync})
	o.delivery = d
	r.mu.Unlock()
	wake()
	return nil
}

// open returns the handle of the observer's source.
func (r *Registry) open(run *running, o *Observer) (*store.Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkObserver(o); err != nil {
		return nil, err
	}
	s := r.source(o.selector)
	if s.handle != nil || s.err != nil {
		return s.handle, s.err
	}
	gvk, err := r.kind(s.object)
	if err != nil {
		return nil, err
	}
	// The function is the user's: it may declare something in turn, so it is called without the lock.
	r.mu.Unlock()
	options, err := protectOptions(run.ctx, s.options)
	var handle *store.Handle
	if err == nil {
		handle, err = r.opts.Stores.Open(store.Request{
			Kind: gvk, Options: options,
			Unstructured: s.object == unstructuredType || r.wanted(s.selector, unstructuredType),
		})
	}
	r.mu.Lock()
	if err != nil {
		s.err = fmt.Errorf("cannot start source %q (%s): %w", s.selector, s.place, err)
		return nil, s.err
	}
	s.handle = handle
	return handle, nil
}

func (r *Registry) wanted(s Selector, object reflect.Type) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.observers, func(o *Observer) bool { return o.selector == s && o.object == object })
}

func protectOptions(ctx context.Context, fn func(context.Context) ([]source.Option, error)) (options []source.Option, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the function of the source panicked: %v", v)
		}
	}()
	return fn(ctx)
}

// reported takes note of what became of an event.
func (r *Registry) reported(ctx context.Context, o *Observer, out outcome) {
	o.stats.count(out)
	if out.err == nil {
		if out.event.Type == store.Synced {
			close(o.synced)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	facts := []any{"observer", o.Name(), "selector", o.selector, "event", typeOf(out.event.Type), "key", out.event.Key,
		"attempt", out.attempt, "error", out.err}
	var panicked *PanicError
	if errors.As(out.err, &panicked) {
		facts = append(facts, "stack", string(panicked.Stack))
	}
	switch {
	case out.stopped:
		r.log.ErrorContext(ctx, "observer stopped", facts...)
	case out.final:
		r.log.ErrorContext(ctx, "event given up", facts...)
		if out.event.Type == store.Synced {
			close(o.synced) // it was told, and that it could not cope does not make others wait
		}
	default:
		r.log.WarnContext(ctx, "observer failed", facts...)
	}
}

// Remove ends the observer. What it is handling is finished; it may be called from within. The source goes when its last
// observer has gone.
func (o *Observer) Remove() {
	r := o.registry
	r.mu.Lock()
	r.observers = slices.DeleteFunc(r.observers, func(other *Observer) bool { return other == o })
	d := o.delivery
	var last *store.Handle
	if s := r.source(o.selector); s != nil && s.handle != nil && !slices.ContainsFunc(r.observers,
		func(other *Observer) bool { return other.selector == o.selector }) {
		last, s.handle = s.handle, nil
	}
	r.mu.Unlock()
	if d != nil {
		d.close()
	}
	if last != nil {
		last.Release()
	}
}

// Stop ends all observers and sources, waits for the handlers that are running, and returns what failed, joined. Handlers
// find their context cancelled.
func (r *Registry) Stop() error {
	r.mu.Lock()
	run := r.run
	r.run = nil
	observers := slices.Clone(r.observers)
	var handles []*store.Handle
	for _, s := range r.sources {
		if s.handle != nil {
			handles = append(handles, s.handle)
			s.handle = nil
		}
		s.err = nil
	}
	r.mu.Unlock()
	if run == nil {
		return nil
	}
	run.cancel(errStopped)
	for _, o := range observers {
		if o.delivery != nil {
			o.delivery.close()
			o.delivery.active.Wait()
		}
	}
	for _, h := range handles {
		h.Release()
	}
	return nil
}

var errStopped = errors.New("observers were stopped")

// WaitSynced returns when every observer has handled its initial objects, or with the names of those that have not.
func (r *Registry) WaitSynced(ctx context.Context) error {
	r.mu.Lock()
	observers := slices.Clone(r.observers)
	r.mu.Unlock()
	for i, o := range observers {
		select {
		case <-o.synced:
		case <-ctx.Done():
			return fmt.Errorf("%w: not synced: %s", context.Cause(ctx), missing(observers[i:]))
		}
	}
	return nil
}

func missing(observers []*Observer) string {
	var names []string
	for _, o := range observers {
		select {
		case <-o.synced:
		default:
			names = append(names, fmt.Sprintf("%s (%s)", o.selector, o.Name()))
		}
	}
	return strings.Join(names, ", ")
}
