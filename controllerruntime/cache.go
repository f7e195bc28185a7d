package controllerruntime

import (
	"context"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	fairleadcache "github.com/fairlead-io/fairlead/cache"
)

// NewCache returns the cache of a manager with the defaults of [Options]. It is a cache.NewCacheFunc.
func NewCache(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
	return Options{}.NewCache(cfg, opts)
}

// Stores returns the stores of a cache that NewCache returned, or nil for another cache.
func Stores(c any) *fairleadcache.Cache {
	if c, ok := c.(*caching); ok {
		return c.stores.Cache
	}
	return nil
}

// caching is a cache of controller-runtime with informers over stores.
type caching struct {
	cache.Cache
	stores    *stores
	informers informers
	shown     *overlaid // the transport of the HTTP client that the cache was made with; nil: it could not be changed
	hide      func()    // ends the visibility of writes through shown
	started   atomic.Bool
	written   atomic.Bool // a client of NewClient overlays its writes on the stores
	warned    atomic.Bool // of a client of another origin
}

// NewCache returns the cache of a manager. It is a cache.NewCacheFunc.
//
// NewCache adds to the transport of opts.HTTPClient, so that the cache shows the writes of every client that uses this
// HTTP client. Requests through it must not be under way during the first NewCache. A manager meets that. Without an
// HTTP client, or with http.DefaultClient, the cache shows the writes of clients of NewClient alone.
//
// If opts.NewInformer is set, it has to return informers of client-go. Their indexers and resync period are then those
// of the informers over stores.
func (o Options) NewCache(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
	c, err := o.newCache(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("cannot make cache: %w", err)
	}
	return c, nil
}

func (o Options) newCache(cfg *rest.Config, opts cache.Options) (*caching, error) {
	var err error
	given := opts.HTTPClient
	if opts.HTTPClient == nil {
		if opts.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, err
		}
	}
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}
	if opts.Mapper == nil {
		if opts.Mapper, err = apiutil.NewDynamicRESTMapper(cfg, opts.HTTPClient); err != nil {
			return nil, err
		}
	}
	o.warnOfTransform(opts)
	c := &caching{hide: func() {}}
	if c.informers.given = opts.NewInformer; c.informers.given != nil {
		if err := c.informers.probe(); err != nil {
			return nil, err
		}
	}
	if c.stores, err = o.newStores(cfg, opts.HTTPClient, opts.Scheme, opts.Mapper); err != nil {
		return nil, err
	}
	listing := *opts.HTTPClient
	listing.Transport = looking{transportOf(opts.HTTPClient)}
	opts.HTTPClient = &listing
	opts.NewInformer = c.newInformer
	if c.Cache, err = cache.New(cfg, opts); err != nil {
		c.stores.close()
		return nil, err
	}
	if given != nil {
		c.shown = overlaidBy(given, true)
	}
	if c.shown != nil {
		c.hide = c.shown.add(overlay{c.stores.Cache, func(next http.RoundTripper) http.RoundTripper {
			return o.overlay(next, c.stores.Cache)
		}})
	}
	return c, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a cache runs in every replica.
func (c *caching) NeedLeaderElection() bool { return false }

// Start runs the stores and the informers over them. It implements cache.Informers.
func (c *caching) Start(ctx context.Context) error {
	if c.started.Swap(true) {
		return c.Cache.Start(ctx) // returns the error of a second start
	}
	defer c.hide()
	if c.stores.opt.Stores == nil && c.shown == nil && !c.written.Load() {
		log.Log.WithName("fairlead").Info("no client of NewClient writes over this cache, so writes are visible only when " +
			"the watch delivers them; set ctrl.Options.NewClient too")
	}
	return c.stores.runAround(ctx, c.Cache.Start)
}

// newInformer returns an informer over a store.
func (c *caching) newInformer(
	lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	if c.informers.given != nil {
		in := c.informers.given(lw, obj, resync, indexers)
		known, ok := settingsOf(in)
		if !ok {
			return c.informers.addOther(in, obj, fmt.Errorf("NewInformer has returned a %T", in))
		}
		resync, indexers = known.resync, known.indexers
	}
	of, err := collectionOf(lw, c.stores.base)
	var gvk schema.GroupVersionKind
	if err == nil {
		gvk, err = apiutil.GVKForObject(obj, c.stores.scheme)
	}
	if err != nil { // the collection is unknown: use a separate watch, as upstream does
		return c.informers.addOther(toolscache.NewSharedIndexInformer(lw, obj, resync, indexers), obj, err)
	}
	return c.informers.add(
		newInformer(obj, resync, indexers, c.stores.opt.holdWrites(), c.stores.opener(gvk, obj, of.options())),
	)
}

// Get implements client.Reader.
func (c *caching) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	c.readBy()
	return c.Cache.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *caching) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.readBy()
	return c.Cache.List(ctx, list, opts...)
}

// readBy warns once if a client that NewClient has not made reads the cache: its writes may be invisible.
func (c *caching) readBy() {
	if c.warned.Load() {
		return
	}
	var callers [1]uintptr
	goruntime.Callers(3, callers[:])
	frame, _ := goruntime.CallersFrames(callers[:]).Next()
	if strings.HasPrefix(frame.Function, "sigs.k8s.io/controller-runtime/pkg/client.(*client).") && !c.warned.Swap(true) {
		log.Log.WithName("fairlead").Info("a client of client.New reads this cache; it reads its own writes at once only " +
			"with the HTTP client of the cache: client.Options{HTTPClient: mgr.GetHTTPClient(), Cache: …}")
	}
}
