package observe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Origin is a declared source. It is open while it has an observer.
type Origin struct {
	registry *Registry
	selector Selector
	object   reflect.Type // the type delivered; nil for a filter, which has the type of its input
	place    string

	// Exactly one of these three is set.
	settings settings // for a watch
	filter   func(*cache.Record) bool
	derive   func(derivedHost) *feed

	kind     schema.GroupVersionKind // for a watch; empty: derived from the Go type
	inputs   []input                 // for a filter or derived source
	nilFunc  bool
	settled  atomic.Pointer[[]cache.Option] // result of settings.find
	finding  chan struct{}                  // held while settings.find runs
	scoping  sync.Mutex                     // serializes changes of the namespaces of an open watch
	assigned atomic.Pointer[[]string]       // namespaces set at run time
	whole    *Origin                        // for a twin: its declared source

	// The following fields are guarded by Registry.mu.
	twin *Origin // source of metadata only; nil until needed
	openState
}

// openState tells whether a source is open. Registry.mu guards it.
type openState struct {
	feed    *feed
	since   time.Time // when it was opened
	opening bool      // an attempt is in progress or due
	first   bool      // this is the first attempt, at the start of the registry
	err     error     // of the last attempt
}

// active reports whether the source is open or being opened.
func (s *openState) active() bool { return s.feed != nil || s.opening }

// begin records the first of the attempts to open the source.
func (s *openState) begin(atStart bool) { s.opening, s.first = true, atStart }

// finish records the result of an attempt. again states that another one is due. finish reports whether it was the
// first attempt at the start of the registry.
func (s *openState) finish(err error, again bool) (first bool) {
	first, s.first = s.first, false
	s.err, s.opening = err, again
	return first
}

// opened records that the source is open.
func (s *openState) opened(f *feed) { s.feed, s.since = f, time.Now() }

// take closes the state and returns the feed, which the caller closes without the lock; nil if it is not open.
func (s *openState) take() *feed {
	f := s.feed
	s.feed = nil
	return f
}

// input is an input of a derived source.
type input struct {
	selector Selector
	takes    reflect.Type
}

// feed is an open source: its store and a function that closes it.
type feed struct {
	store  *cache.Store
	handle *cache.Handle // for a watch
	close  func()
}

// watched declares a source with a watch.
func watched[T any, P Object[T]](h Host, s Selector, kind schema.GroupVersionKind, set settings) *Origin {
	o := &Origin{
		registry: h.Observers(), selector: s, object: reflect.TypeFor[T](), place: declared(), kind: kind, settings: set,
		nilFunc: set.find == nil, finding: make(chan struct{}, 1),
	}
	o.registry.declareOrigin(o)
	return o
}

// decode returns the shared object of a record in the type of the source.
func (o *Origin) decode(r *cache.Record) (client.Object, error) {
	object, err := r.As(o.object)
	if err != nil {
		return nil, err
	}
	return object.(client.Object), nil
}

// SetNamespaces changes the watched namespaces, before or during the run. New namespaces are listed. Objects of removed
// namespaces are forgotten, and observers receive inferred deletions; other namespaces are not affected. No arguments
// mean all namespaces. An observer of the source must not call SetNamespaces, which may wait for that observer. Sources
// with identical objects share the watch and therefore its namespaces.
func (o *Origin) SetNamespaces(namespaces ...string) error {
	if o.derive != nil || o.filter != nil {
		return fmt.Errorf("cannot set namespaces of %q: %w", o.selector, errFixed)
	}
	if err := source.CheckNamespaces([]cache.Option{cache.Namespaces(namespaces...)}); err != nil {
		return fmt.Errorf("cannot set namespaces of %q: %w", o.selector, err)
	}
	namespaces = slices.Clone(namespaces)
	o.assigned.Store(&namespaces)
	var errs []error
	for _, f := range o.registry.feedsOf(o) { // otherwise they take effect when it is opened
		errs = append(errs, o.applyNamespaces(f))
	}
	return errors.Join(errs...)
}

// applyNamespaces sets the namespaces of an open watch to those assigned last.
func (o *Origin) applyNamespaces(f *feed) error {
	o = o.base()
	o.scoping.Lock()
	defer o.scoping.Unlock()
	assigned := o.assigned.Load()
	if assigned == nil {
		return nil
	}
	if err := f.handle.SetNamespaces(*assigned...); err != nil {
		return fmt.Errorf("cannot set namespaces of %q: %w", o.selector, err)
	}
	return nil
}

// check returns the mistakes in the options, as far as they can be detected.
func (s settings) check() error {
	if err := source.CheckSelectors(s.known); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformedSelector, err)
	}
	return source.CheckNamespaces(s.known)
}

func (o *Origin) cannotStart(err error) error {
	return fmt.Errorf("cannot start source %q (%s): %w", o.selector, o.place, err)
}

// openFeed opens the source; watch opens the store of a watched source. It calls the user's function, so no lock may be
// held.
func (o *Origin) openFeed(ctx context.Context, watch func([]cache.Option) (*cache.Handle, error)) (f *feed, err error) {
	if p := protect.Call(func() { f, err = o.findFeed(ctx, watch) }); p != nil {
		f, err = nil, fmt.Errorf("the function of the source panicked: %v", p.Value)
	}
	if err != nil {
		err = o.cannotStart(err)
	}
	return f, err
}

func (o *Origin) findFeed(ctx context.Context, watch func([]cache.Option) (*cache.Handle, error)) (*feed, error) {
	if o.derive != nil {
		return o.derive(o.registry.derivedHost(o)), nil
	}
	options, err := o.options(ctx)
	if err != nil {
		return nil, err
	}
	handle, err := watch(options)
	if err != nil {
		return nil, err
	}
	return &feed{store: handle.Store, handle: handle, close: handle.Release}, nil
}
