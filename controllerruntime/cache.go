package controllerruntime

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	stores  *stores
	started atomic.Bool
	written atomic.Bool // a client overlays its writes on the stores
}

// NewCache returns the cache of a manager. It is a cache.NewCacheFunc.
func (o Options) NewCache(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
	c, err := o.newCache(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("cannot make cache: %w", err)
	}
	return c, nil
}

func (o Options) newCache(cfg *rest.Config, opts cache.Options) (*caching, error) {
	var err error
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
	c := &caching{}
	if c.stores, err = o.newStores(cfg, opts.HTTPClient, opts.Scheme, opts.Mapper); err != nil {
		return nil, err
	}
	client := *opts.HTTPClient
	client.Transport = looking{transportOf(opts.HTTPClient)}
	opts.HTTPClient = &client
	if opts.NewInformer == nil { // a NewInformer set by the caller takes precedence
		opts.NewInformer = c.newInformer
	}
	c.Cache, err = cache.New(cfg, opts)
	return c, err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a cache runs in every replica.
func (c *caching) NeedLeaderElection() bool { return false }

// Start runs the stores and the informers over them. It implements cache.Informers.
func (c *caching) Start(ctx context.Context) error {
	if c.started.Swap(true) {
		return c.Cache.Start(ctx) // returns the error of a second start
	}
	if c.stores.opt.Stores == nil && !c.written.Load() {
		log.Log.WithName("fairlead").Info("no client of NewClient writes over this cache: what is written by others " +
			"is seen when the watch brings it; set ctrl.Options.NewClient too")
	}
	return c.stores.runAround(ctx, c.Cache.Start)
}

// newInformer returns an informer over a store.
func (c *caching) newInformer(
	lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	of, err := collectionOf(lw, c.stores.base)
	var gvk schema.GroupVersionKind
	if err == nil {
		gvk, err = apiutil.GVKForObject(obj, c.stores.scheme)
	}
	if err != nil { // the collection is unknown: use a separate watch, as upstream does
		klog.Background().Error(err, "an informer is not over a store, and does not see own writes at once",
			"type", fmt.Sprintf("%T", obj))
		return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
	}
	return newInformer(obj, resync, indexers, c.stores.opt.holdWrites(), c.stores.opener(gvk, obj, of.options()))
}
