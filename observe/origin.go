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

// Origin is a declared source. It is opened when it has an observer and closed when it has none.
type Origin struct {
	registry *Registry
	selector Selector
	object   reflect.Type // what it delivers; nil for a filter, which delivers what its input does
	place    string

	// One of these three is set.
	settings settings // of a watch
	filter   func(*cache.Record) bool
	derive   func(context.Context, *Origin) (*feed, error)

	kind     schema.GroupVersionKind // of a watch; empty: found by type
	inputs   []input                 // of a filter or derived source
	nilFunc  bool
	settled  atomic.Pointer[[]cache.Option] // what settings.find returned
	finding  chan struct{}                  // held by who asks for it
	scoping  sync.Mutex                     // serializes changes of the namespaces of an open watch
	assigned atomic.Pointer[[]string]       // namespaces set at run time
	whole    *Origin                        // of a twin: whose it is

	// What follows is guarded by Registry.mu.
	twin    *Origin // of metadata only; nil until somebody needs it
	feed    *feed
	opening bool
	first   bool // it is being opened for the first time, at the start
	since   time.Time
	err     error // why the last attempt failed
}

// input is what a derived source is made from.
type input struct {
	selector Selector
	takes    reflect.Type
}

// feed is an open source: the store, and how to let go of it.
type feed struct {
	store  *cache.Store
	handle *cache.Handle // of a watch
	close  func()
}

// watched declares a source that is watched.
func watched[T any, P Object[T]](h Host, s Selector, kind schema.GroupVersionKind, set settings) *Origin {
	o := &Origin{
		registry: h.Observers(), selector: s, object: reflect.TypeFor[T](), place: declared(), kind: kind, settings: set,
		nilFunc: set.find == nil, finding: make(chan struct{}, 1),
	}
	o.registry.declareOrigin(o)
	return o
}

// decode returns the shared object of a record as what the source delivers.
func (o *Origin) decode(r *cache.Record) (client.Object, error) {
	object, err := r.As(o.object)
	if err != nil {
		return nil, err
	}
	return object.(client.Object), nil
}

// Selector returns the selector that the source is declared for.
func (o *Origin) Selector() Selector { return o.selector }

// SetNamespaces changes what is watched, while the host runs or before: namespaces that are new are listed, those that
// are missing are forgotten, which observers are told as inferred deletions, and the others go on untouched. None
// stands for all. It must not be called by an observer of the source, whose changes it may wait for. Others that watch
// the very same objects share the watch, and what it covers.
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
		if f != nil { // else they are used when it is opened
			errs = append(errs, o.applyNamespaces(f))
		}
	}
	return errors.Join(errs...)
}

// applyNamespaces brings an open watch to the namespaces that were assigned last.
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

// check returns what is wrong with the options, as far as it can be seen.
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

// openFeed opens the source. It calls the user's function, so no lock is held.
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
