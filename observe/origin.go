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

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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
	derive   func(context.Context, *Origin) (*feed, error)

	kind     schema.GroupVersionKind // for a watch; empty: derived from the Go type
	inputs   []input                 // for a filter or derived source
	nilFunc  bool
	settled  atomic.Pointer[[]cache.Option] // result of settings.find
	finding  chan struct{}                  // held while settings.find runs
	scoping  sync.Mutex                     // serializes changes of the namespaces of an open watch
	assigned atomic.Pointer[[]string]       // namespaces set at run time
	whole    *Origin                        // for a twin: its declared source

	// The following fields are guarded by Registry.mu.
	twin    *Origin // source of metadata only; nil until needed
	feed    *feed
	opening bool
	first   bool // the first attempt to open it, at the start
	since   time.Time
	err     error // error of the last attempt
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
	namespaces = slices.Clone(namespaces)
	o.assigned.Store(&namespaces)
	o.registry.mu.Lock()
	feeds := []*feed{o.feed}
	if o.twin != nil {
		feeds = append(feeds, o.twin.feed)
	}
	o.registry.mu.Unlock()
	var errs []error
	for _, f := range feeds {
		if f != nil { // otherwise they take effect when it is opened
			errs = append(errs, o.applyNamespaces(f))
		}
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
	var cfg source.Config
	for _, o := range s.known {
		if o != nil {
			o(&cfg)
		}
	}
	if _, err := labels.Parse(cfg.LabelSelector); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformedSelector, err)
	}
	if _, err := fields.ParseSelector(cfg.FieldSelector); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformedSelector, err)
	}
	return nil
}

func (o *Origin) cannotStart(err error) error {
	return fmt.Errorf("cannot start source %q (%s): %w", o.selector, o.place, err)
}

// openFeed opens the source. It calls the user's function, so no lock may be held.
func (o *Origin) openFeed(ctx context.Context) (f *feed, err error) {
	if p := protect.Call(func() { f, err = o.findFeed(ctx) }); p != nil {
		f, err = nil, fmt.Errorf("the function of the source panicked: %v", p.Value)
	}
	if err != nil {
		err = o.cannotStart(err)
	}
	return f, err
}

func (o *Origin) findFeed(ctx context.Context) (*feed, error) {
	if o.derive != nil {
		return o.derive(ctx, o)
	}
	r := o.registry
	options, err := o.options(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	request, err := r.request(o, options)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	handle, err := r.opts.Stores.Open(request)
	if err != nil {
		return nil, err
	}
	return &feed{store: handle.Store, handle: handle, close: handle.Release}, nil
}
