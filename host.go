package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

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
)

// Host is one API server that a Runtime works with: what is declared on it, and how to read and write there. It is
// safe for concurrent use.
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
	checks    []func() error // guarded by the mu of rt
	needs     []rights.Right // likewise
	askers    []rights.Asker // likewise
	// those of rt that were declared here; likewise
	controllers []*reconcile.Controller
	abandon     context.CancelFunc     // ends discovery, which knows no context
	collect     []prometheus.Collector // what it has registered
}

var (
	_ observe.Host       = (*Host)(nil)
	_ reconcile.Checker  = (*Host)(nil)
	_ reconcile.Overseer = (*Host)(nil)
)

// newHost sends nothing.
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

// register adds metrics, with the name of the cluster.
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

// unregister takes away what this cluster has registered, not what another one of its name has.
func (c *Host) unregister() {
	for _, m := range c.collect {
		c.metrics().Unregister(m)
	}
	c.collect = nil
}

// metrics registers with the name of the cluster.
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
		Dir: dir, Config: cfg, Scheme: o.scheme, Mapper: mapper, Source: o.source, Logger: o.logger, Linger: o.linger,
		TracerProvider: o.tracers,
		Store:          store.Options{HotBytes: o.hotBytes, DetectMutation: o.detect}, Contents: o.contents,
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

// directory returns the name of the directory of a cluster, which is below that of the first one.
func directory(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// stores returns what is watched, by whomever: observers, reconcilers, or who acquired it from the cache.
func (c *Host) stores() []*cache.Store {
	if c.cache == nil {
		return nil
	}
	return c.cache.Stores(schema.GroupVersionResource{})
}

// discover returns a mapper that asks the server when it is needed first, and again for what it does not know.
func (c *Host) discover(cfg *rest.Config) (meta.RESTMapper, error) {
	life, end := context.WithCancel(context.Background())
	c.abandon = end
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(abandon.With(life)) // a server that does not answer cannot keep Run from returning
	return discover.NewMapper(cfg, c.log)
}

// start starts the observers. If ctx ends meanwhile, so does the discovery that sources may be waiting for.
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

// Name returns the name of the cluster, empty for the runtime's first one.
func (c *Host) Name() string { return c.name }

// Observers returns the registry of sources and observers; it makes the Host an observe.Host.
func (c *Host) Observers() *observe.Registry { return c.observers }

// Client reads what is observed and writes to the cluster; a write is seen by the next read. It is nil if New failed.
func (c *Host) Client() *client.Client { return c.client }

// Cache returns the stores. It is nil if New failed.
func (c *Host) Cache() *cache.Cache { return c.cache }

// Calls makes requests under the runtime's policy. It is nil if New failed.
func (c *Host) Calls() *call.Client { return c.calls }

// Registry returns where the runtime's metrics are.
func (c *Host) Registry() *prometheus.Registry { return c.rt.opts.registry }

// Inherit says what controllers have of the cluster: it makes the Host a reconcile.Overseer.
func (c *Host) Inherit() reconcile.Inherited {
	in := reconcile.Inherited{Logger: c.log, TracerProvider: c.tracers, Cluster: c.name, Degraded: c.degraded}
	if g := c.rt.Shards(); g != nil {
		in.Shards = g
	}
	return in
}

// shards says which of the objects this process works on; nil: on all.
func (c *Host) shards() observe.Shards {
	if g := c.rt.Shards(); g != nil {
		return g
	}
	return nil
}

// Oversee has /debug/controllers and /readyz show a controller. Package reconcile calls it.
func (c *Host) Oversee(ctl *reconcile.Controller) {
	if ctl == nil {
		return
	}
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	if c.rt.ran && c.rt.sharing != nil {
		c.rt.mistakeLocked(fmt.Errorf("cannot run controller %q: where replicas share the objects it has to be declared "+
			"before Run", ctl.Name()))
	}
	c.rt.controllers = append(c.rt.controllers, ctl)
	c.controllers = append(c.controllers, ctl)
	c.askers = append(c.askers, ctl)
}

// Check has Run ask fn what is wrong with a declaration, before it begins. It is for packages whose declarations end in
// Add: Run returns all mistakes together. If the runtime has begun, fn is not asked.
func (c *Host) Check(fn func() error) {
	if fn == nil {
		return
	}
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	c.checks = append(c.checks, fn)
}

// AddReady has /readyz ask fn, too: an error is why this process is not ready, whether or not it leads. fn is to be
// quick, and is called by many at a time. A panic of it is such an error.
func (c *Host) AddReady(name string, fn func() error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	if fn == nil {
		c.rt.mistake(fmt.Errorf("cannot ask %q whether it is ready: it is nil", name))
		return
	}
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	c.rt.parts = append(c.rt.parts, part{name, fn})
}

// Add has fn run from when the observers of all clusters have been started until it returns or the runtime stops, which
// cancels its context. An error that it returns, or a panic, stops the runtime. If the runtime is running, fn starts at
// once. A lease, an executor or a relay without a logger of its own, that fn runs with this context, uses the
// runtime's.
func (c *Host) Add(name string, fn func(ctx context.Context) error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	if fn == nil {
		c.rt.mistake(fmt.Errorf("cannot add %q: it is nil", name))
		return
	}
	c.rt.add(task{name, func(ctx context.Context) error { return fn(inherit.With(ctx, c.log)) }})
}
