package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/abandon"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
)

// Host is one API server that a Runtime works with. Sources, observers and controllers are declared on it, and its
// client reads and writes there. It is safe for concurrent use.
type Host struct {
	name      string
	rt        *Runtime
	err       error // of New, returned by Run
	log       *slog.Logger
	degraded  bool
	tracers   trace.TracerProvider
	calls     *call.Client
	cache     *cache.Cache
	client    *client.Client
	observers *observe.Registry
	abandon   context.CancelFunc     // cancels discovery, which takes no context
	collect   []prometheus.Collector // the registered collectors

	mu          sync.Mutex // after declared.mu
	checks      []func() error
	needs       []rights.Right
	askers      []rights.Asker
	controllers []*reconcile.Controller
}

var (
	_ observe.Host       = (*Host)(nil)
	_ reconcile.Checker  = (*Host)(nil)
	_ reconcile.Overseer = (*Host)(nil)
)

// newHost sends no requests. An error is stored in the Host and returned by Run.
func newHost(rt *Runtime, name string, cfg *rest.Config, o options) *Host {
	c := &Host{name: name, rt: rt, log: o.logger, degraded: o.degraded, tracers: o.tracers}
	if err := c.connect(cfg, o); err != nil {
		c.err = fmt.Errorf("cannot make a runtime: %w", err)
		if name != "" {
			c.err = fmt.Errorf("cannot make a runtime for cluster %q: %w", name, err)
		}
	}
	c.observers = observe.NewRegistry(observe.RegistryOptions{
		Cluster: name, Scheme: o.scheme, Stores: c.cache, Logger: o.logger, Degraded: o.degraded, Grace: grace,
		DetectMutation: o.detect, Shards: c.shards(),
	})
	if err := c.register(c.observers.Collector()); err != nil {
		c.err = errors.Join(c.err, err)
	}
	return c
}

// register adds metrics with the label of the cluster.
func (c *Host) register(metrics ...prometheus.Collector) error {
	var errs []error
	for _, m := range metrics {
		if err := c.metrics().Register(m); err != nil {
			errs = append(errs, fmt.Errorf("cannot register metrics: %w", err))
			continue
		}
		c.collect = append(c.collect, m)
	}
	return errors.Join(errs...)
}

// unregister removes the metrics that this Host registered, but not those of another Host with the same name.
func (c *Host) unregister() {
	for _, m := range c.collect {
		c.metrics().Unregister(m)
	}
	c.collect = nil
}

// metrics returns a registerer that adds the cluster label.
func (c *Host) metrics() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"cluster": c.name}, c.rt.opts.registry)
}

func (c *Host) connect(cfg *rest.Config, o options) error {
	if cfg == nil {
		return errors.New("no rest.Config")
	}
	metrics := call.NewMetrics()
	var err error
	if c.calls, err = call.New(call.Options{
		Config: cfg, Logger: o.logger, Metrics: metrics, TracerProvider: o.tracers,
	}); err != nil {
		return err
	}
	mapper := o.mapper
	if mapper == nil {
		if mapper, err = c.discover(cfg); err != nil {
			return err
		}
	}
	dir := o.dir
	if dir != "" {
		dir = filepath.Join(dir, directory(c.name))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if c.cache, err = cache.NewCache(cache.CacheOptions{
		Dir: dir, Config: cfg, Connection: c.calls.Connection(), Scheme: o.scheme, Mapper: mapper, Source: o.source,
		Logger: o.logger, Linger: o.linger, TracerProvider: o.tracers, Contents: o.contents,
		Store: store.Options{HotBytes: o.hotBytes, DetectMutation: o.detect},
	}); err != nil {
		return err
	}
	if c.client, err = client.New(client.Options{
		Config: cfg, Call: c.calls, Cache: c.cache, Scheme: o.scheme, Mapper: mapper, Logger: o.logger,
		FieldOwner: o.fieldOwner,
	}); err != nil {
		return err
	}
	return c.register(metrics, store.Collector(c.stores))
}

// directory returns the directory name for a cluster, relative to the directory of the first cluster.
func directory(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// stores returns every watched store, including those that callers acquired from the cache.
func (c *Host) stores() []*cache.Store {
	if c.cache == nil {
		return nil
	}
	return c.cache.Stores(schema.GroupVersionResource{})
}

// discover returns a mapper that asks the server at first use, and again for a kind that it does not know.
func (c *Host) discover(cfg *rest.Config) (meta.RESTMapper, error) {
	life, end := context.WithCancel(context.Background())
	c.abandon = end
	// A server that does not answer cannot keep Run from returning.
	return discover.NewMapper(cfg, abandon.Transport{Next: c.calls.Connection(), Life: life}, c.log)
}

// start starts the observers. If ctx ends meanwhile, it cancels the discovery that sources may wait for.
func (c *Host) start(ctx context.Context) error {
	if c.abandon != nil {
		release := context.AfterFunc(ctx, c.abandon)
		defer release()
	}
	return c.observers.Start(ctx)
}

func (c *Host) close() {
	if c.abandon != nil {
		c.abandon()
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.calls != nil {
		c.calls.Close()
	}
}

// needsNoService reports whether a store can be listed before this process is ready. For kinds that the process
// converts this may fail: the API server reaches the converter through a Service, which routes only to ready processes.
func (c *Host) needsNoService(st *cache.Store) bool {
	return !c.cache.Holds(st.Options().Kind.GroupKind())
}

// Name returns the name of the cluster. It is empty for the runtime's first cluster.
func (c *Host) Name() string { return c.name }

// Observers returns the registry of sources and observers. It implements observe.Host.
func (c *Host) Observers() *observe.Registry { return c.observers }

// Client returns the client of the cluster. It reads observed objects from memory, and a read sees earlier writes.
// Client returns nil if New failed.
func (c *Host) Client() *client.Client { return c.client }

// Cache returns the stores. It returns nil if New failed.
func (c *Host) Cache() *cache.Cache { return c.cache }

// Calls returns the client that makes requests under the runtime's policy. It returns nil if New failed.
func (c *Host) Calls() *call.Client { return c.calls }

// Registry returns the registry of the runtime's metrics.
func (c *Host) Registry() *prometheus.Registry { return c.rt.opts.registry }

// Inherit returns the settings that controllers take over from the cluster. It implements reconcile.Overseer.
func (c *Host) Inherit() reconcile.Inherited {
	return reconcile.Inherited{
		Logger: c.log, TracerProvider: c.tracers, Shards: c.shards(), Cluster: c.name, Degraded: c.degraded,
	}
}

// shards returns the selection of objects that this process works on, or nil for all objects.
func (c *Host) shards() shard.Membership {
	if g := c.rt.Shards(); g != nil {
		return g
	}
	return nil
}

// Oversee adds a controller to /debug/controllers and /readyz. It returns an error if another controller of the cluster
// has the name. Package reconcile calls it.
func (c *Host) Oversee(ctl *reconcile.Controller) error {
	if ctl == nil {
		return nil
	}
	for _, other := range c.overseen() {
		if other.Name() == ctl.Name() {
			return fmt.Errorf("the name is taken by the controller declared at %s", other.Describe(0).At)
		}
	}
	c.rt.declared.addController(c, ctl, c.rt.sharing != nil)
	return nil
}

// oversee adds a controller to those of this cluster.
func (c *Host) oversee(ctl *reconcile.Controller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllers = append(c.controllers, ctl)
	c.askers = append(c.askers, ctl)
}

// overseen returns the controllers of this cluster.
func (c *Host) overseen() []*reconcile.Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.controllers)
}

// pendingChecks returns the functions of Check.
func (c *Host) pendingChecks() []func() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.checks)
}

// Check has Run call fn before it starts and return fn's error together with all other mistakes. It is for packages
// whose declarations end in Add. A runtime that has started does not call fn.
func (c *Host) Check(fn func() error) {
	if fn == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks = append(c.checks, fn)
}

// AddReady adds fn to the checks of /readyz. While fn returns an error or panics, this process is not ready, whether or
// not it leads. fn must return quickly and be safe for concurrent use.
func (c *Host) AddReady(name string, fn func() error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	if fn == nil {
		c.rt.declared.mistake(fmt.Errorf("cannot ask %q whether it is ready: it is nil", name))
		return
	}
	c.rt.health.addPart(name, fn)
}

// Add runs fn once the observers of all clusters have started. fn runs until it returns or the runtime stops, which
// cancels its context. An error or a panic of fn stops the runtime. If the runtime is already running, fn starts at
// once. A lease, an executor or a relay without a logger of its own uses the runtime's when fn runs it with this
// context.
func (c *Host) Add(name string, fn func(ctx context.Context) error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	if fn == nil {
		c.rt.declared.mistake(fmt.Errorf("cannot add %q: it is nil", name))
		return
	}
	c.rt.additions.add(task{name, func(ctx context.Context) error { return fn(inherit.With(ctx, c.log)) }})
}
