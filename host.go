package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inherit"
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
	conn      connection
	metrics   registrations
	observers *observe.Registry
	roster    roster
}

var (
	_ observe.Host       = (*Host)(nil)
	_ reconcile.Checker  = (*Host)(nil)
	_ reconcile.Overseer = (*Host)(nil)
)

// newHost sends no requests. An error is stored in the Host and returned by Run.
func newHost(rt *Runtime, name string, cfg *rest.Config, o options) *Host {
	c := &Host{name: name, rt: rt, log: o.logger, degraded: o.degraded, tracers: o.tracers}
	c.metrics.to = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": name}, rt.opts.registry)
	if err := c.conn.connect(cfg, name, o, c.metrics.register); err != nil {
		c.err = fmt.Errorf("cannot make a runtime: %w", err)
		if name != "" {
			c.err = fmt.Errorf("cannot make a runtime for cluster %q: %w", name, err)
		}
	}
	c.observers = observe.NewRegistry(observe.RegistryOptions{
		Cluster: name, Scheme: o.scheme, Stores: c.conn.cache, Logger: o.logger, Degraded: o.degraded, Grace: grace,
		DetectMutation: o.detect, Shards: c.shards(),
	})
	if err := c.metrics.register(c.observers.Collector()); err != nil {
		c.err = errors.Join(c.err, err)
	}
	return c
}

// start starts the observers.
func (c *Host) start(ctx context.Context) error {
	return c.conn.during(ctx, func() error { return c.observers.Start(ctx) })
}

// Name returns the name of the cluster. It is empty for the runtime's first cluster.
func (c *Host) Name() string { return c.name }

// Observers returns the registry of sources and observers. It implements observe.Host.
func (c *Host) Observers() *observe.Registry { return c.observers }

// Client returns the client of the cluster. It reads observed objects from memory, and a read sees earlier writes.
// Client returns nil if New failed.
func (c *Host) Client() *client.Client { return c.conn.client }

// Cache returns the stores. It returns nil if New failed.
func (c *Host) Cache() *cache.Cache { return c.conn.cache }

// Calls returns the client that makes requests under the runtime's policy. It returns nil if New failed.
func (c *Host) Calls() *call.Client { return c.conn.calls }

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
	for _, other := range c.roster.overseen() {
		if other.Name() == ctl.Name() {
			return fmt.Errorf("the name is taken by the controller declared at %s", other.Describe(0).At)
		}
	}
	c.rt.declared.addController(c, ctl, c.rt.sharing != nil)
	return nil
}

// Check has Run call fn before it starts and return fn's error together with all other mistakes. It is for packages
// whose declarations end in Add. A runtime that has started does not call fn.
func (c *Host) Check(fn func() error) {
	if fn == nil {
		return
	}
	c.roster.addCheck(fn)
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

// AddAlways is like Add for functions that every process runs, whether or not it leads, such as an HTTP API or webhooks
// beside controllers. fn runs from before the election until all functions added with Add have stopped, so it serves
// while they drain. The caches then also run in every process: stores acquired from [Host.Cache] are watched and can be
// read. Observers and controllers still wait for leadership. Requests that fn sends are not bound to leadership.
//
// AddAlways must be called before Run; otherwise Run returns the mistake. An error or a panic of fn stops the runtime.
// [Runtime.Handler] describes the effect on /readyz.
func (c *Host) AddAlways(name string, fn func(ctx context.Context) error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	if fn == nil {
		c.rt.declared.mistake(fmt.Errorf("cannot add %q: it is nil", name))
		return
	}
	c.rt.declared.addAlways(task{name, func(ctx context.Context) error { return fn(inherit.With(ctx, c.log)) }})
}

// declare calls fn, which makes a declaration on the cluster; Run returns its error. ran is an error if Run was called.
func (c *Host) declare(fn func(ran error) error) { c.rt.declared.declare(fn) }

// Need declares permissions that the program needs in addition to those of its sources, its controllers and
// reconcile.Needs. It is for functions added with Add, such as an HTTP API. Need only declares; it grants nothing.
func (c *Host) Need(all ...rights.Right) {
	c.roster.addNeeds(all)
}

// Ask includes the rights of a in Rights. It is for parts that know their own rights, such as the hooks of package
// admission.
func (c *Host) Ask(a rights.Asker) {
	if a == nil {
		return
	}
	c.roster.addAsker(a)
}

// Rights returns the permissions that all declarations so far need: those of sources, controllers and Need. On the
// first cluster it includes the Lease of WithLeaderElection or the Leases of WithShards. With shards by namespace it
// includes listing Namespaces, on every cluster. Rights sends no requests and may be called before Run, so that package
// rights can make a role:
//
//	account := rights.Account{Namespace: "web-system", Name: "web"}
//	objects, err := rights.Manifests(rt.Client().Mapper(), account, rt.Rights())
//
// The order is stable and has no duplicates.
func (c *Host) Rights() []rights.Right {
	all, askers := c.roster.rights()
	if c.observers != nil {
		askers = append(askers, c.observers)
	}
	if c.name == "" {
		if l, ok := c.rt.leadership.election.(rights.Asker); ok {
			askers = append(askers, l)
		}
		if g := c.rt.Shards(); g != nil {
			askers = append(askers, g)
		}
	}
	if g := c.rt.Shards(); g != nil && g.Layout().By == shard.Namespace {
		// It is optional, but saves much; see internal/source.
		all = append(all, rights.Of(corev1.SchemeGroupVersion.WithKind("Namespace"), "list"))
	}
	for _, a := range askers {
		all = append(all, a.Rights()...)
	}
	return rights.Merge(all)
}

// Engine returns the engine that the runtime manages: the engine of Flows, or one that the first call makes.
func (c *Host) Engine() *flow.Engine {
	e, made := c.rt.engines.orMake()
	if made {
		c.rt.manage(e)
	}
	return e
}
