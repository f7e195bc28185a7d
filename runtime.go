package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/interrupt"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Errors that Run may return, besides those of the parts that it runs.
var (
	// errRan means that Run was called before. A Runtime can run only once.
	errRan = errors.New("the runtime has been run already")
	// ErrNotLeading means that another process leads, or may lead.
	ErrNotLeading = lease.ErrNotLeading
)

// Runtime runs sources, observers, controllers and other parts on one or several clusters. Make it with [New]. It is
// safe for concurrent use.
type Runtime struct {
	// Host is the first cluster, the API server of the configuration passed to New.
	*Host

	opts  options
	log   *slog.Logger
	phase atomic.Value // phase

	declared   *declared
	additions  additions
	engines    engines
	leadership *leadership
	sharing    *sharing // nil: no sharding
	pages      *pages
	health     *health
}

// phase is the state of a runtime that its health pages show.
type phase string

const (
	phaseNew      phase = "not started"
	phaseStandby  phase = "standby"
	phaseStarting phase = "starting: observers are not synced yet"
	phaseReady    phase = "ready"
	phaseStopping phase = "stopping"
)

// New returns a Runtime for a cluster. It sends no requests. Run returns an error of the configuration, so declarations
// need no error handling.
func New(cfg *rest.Config, opts ...Option) *Runtime {
	rt := &Runtime{pages: newPages()}
	rt.phase.Store(phaseNew)
	for _, o := range opts {
		if o != nil {
			o(&rt.opts)
		}
	}
	rt.opts.complete()
	rt.log = rt.opts.logger
	rt.declared = &declared{log: rt.log}
	var err error
	if rt.opts.shards != nil {
		rt.sharing, err = newSharing(cfg, rt.opts)
		rt.declared.mistake(err)
	}
	if rt.sharing != nil {
		rt.opts.source = append(slices.Clip(rt.opts.source), source.ShardWith(rt.sharing.sources))
		rt.declared.mistake(rt.opts.registry.Register(rt.sharing.group.Collector()))
	}
	rt.leadership, err = newLeadership(cfg, rt.opts)
	rt.declared.mistake(err)
	if rt.leadership.election != nil {
		rt.declared.mistake(rt.opts.registry.Register(rt.leadership.metric()))
	}
	rt.Host = newHost(rt, "", cfg, rt.opts)
	rt.declared.clusters = []*Host{rt.Host}
	rt.health = &health{staleness: rt.opts.staleness, log: rt.log, of: view{
		phase: rt.now, clusters: rt.declared.members, controllers: rt.declared.overseen, serves: rt.declared.serves,
		slots: rt.sharing.waits, leader: rt.leadership.leader,
	}}
	rt.ownPages()
	if rt.opts.console != nil && rt.declared.mistakes() == nil {
		rt.openConsole()
	}
	return rt
}

// now returns the phase.
func (rt *Runtime) now() phase { return rt.phase.Load().(phase) }

// ownPages adds the pages of the runtime and of its group.
func (rt *Runtime) ownPages() {
	rt.Handle("GET /healthz", http.HandlerFunc(rt.health.healthz))
	rt.Handle("GET /readyz", http.HandlerFunc(rt.health.readyz))
	rt.Handle("GET /metrics", promhttp.HandlerFor(rt.opts.registry,
		promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	rt.Handle("GET /debug/{$}", http.HandlerFunc(rt.pages.index))
	rt.Handle("GET /debug/sources", page(func() fmt.Stringer { return sourcesOf(rt.declared.members()) }))
	rt.Handle("GET /debug/controllers", reconcile.DebugHandler(rt.declared.overseen))
	if rt.sharing != nil {
		rt.Handle("/debug/shards", http.HandlerFunc(rt.sharing.page))
	}
	rt.Handle("GET /debug/observers", page(func() fmt.Stringer { return rt.Describe() }))
}

func (rt *Runtime) openConsole() {
	pages, err := rt.opts.console.Open(rt)
	if err != nil {
		rt.declared.mistake(err)
		return
	}
	rt.Handle("/console/", pages)
	rt.Handle("/api/", pages)
}

// Join adds a cluster to the runtime. The runtime starts and stops it and shows it on its pages together with the first
// one. Each cluster has its own selectors, so the same declarations can be made on several clusters. Options are
// applied after those of New; options that concern the whole runtime have no effect. Join must be called before Run,
// and each name can be used once; otherwise Run returns the mistake, with file and line. After the start of Run, Join
// logs the mistake at once, Run returns it at the end, and the Host is closed and runs nothing.
func (rt *Runtime) Join(name string, cfg *rest.Config, opts ...Option) *Host {
	o := rt.opts
	o.mapper = nil
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	o.complete()
	o.logger = o.logger.With("cluster", name)
	at := place.Outside("github.com/fairlead-io/fairlead")
	c := newHost(rt, name, cfg, o)
	if !rt.declared.join(c, at) {
		c.conn.close()
		c.metrics.unregister()
	}
	return c
}

// Flows makes the runtime manage an engine. The engine uses the logger and the tracer of the runtime unless it has its
// own. The runtime registers the engine's metrics and shows its fibers at /debug/flows. At the end the fibers may
// finish during the drain before they are cancelled. A runtime has one engine. Flows must be called before any
// declaration that uses [Host.Engine].
func (rt *Runtime) Flows(e *flow.Engine) {
	if err := rt.engines.use(e); err != nil {
		rt.declared.mistake(err)
		return
	}
	rt.manage(e)
}

// manage connects an engine to the runtime's logger, tracer, metrics, pages and stop.
func (rt *Runtime) manage(e *flow.Engine) {
	e.Inherit(rt.log, rt.opts.tracers, rt.sharing != nil)
	if err := rt.opts.registry.Register(e.Collector()); err != nil {
		rt.declared.mistake(fmt.Errorf("cannot add an engine: %w", err))
	}
	rt.Handle("/debug/flows", e.DebugHandler())
	rt.Add("flows", func(ctx context.Context) error { return endFlows(ctx, e, rt.opts.drain) })
}

// late returns the mistakes that were made after the start of Run.
func (rt *Runtime) late() error {
	errs := []error{}
	for _, c := range rt.declared.members() {
		errs = append(errs, c.observers.Mistakes())
	}
	return errors.Join(append(errs, rt.declared.mistakes())...)
}

// Run checks the declarations of sources, observers and controllers before it sends any request. It then starts the
// pages of WithListen, the election, the caches, the observers and the added functions, including controllers.
// Functions added with AddAlways run from before the election until all other work has stopped. Run returns when the
// context ends, a signal arrives, leadership is lost or a part fails, after it has stopped all parts in reverse order.
//
// The error is nil if the end of the context or a signal was the only reason. Otherwise it joins the failures in their
// order. The mistakes made during the run come last, such as a late Join or an observer whose selector still has no
// source. Run can be called once.
func (rt *Runtime) Run(ctx context.Context) error {
	if err := rt.begin(); err != nil {
		return err
	}
	defer rt.close()
	defer rt.phase.Store(phaseStopping)
	if len(rt.opts.signals) > 0 {
		var restore func()
		ctx, restore = interrupt.Context(ctx, rt.opts.signals...) // the second signal ends the process
		defer restore()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var listener net.Listener
	if rt.opts.listen != "" { // before all else, so that a taken port has no other effect
		var err error
		if listener, err = net.Listen("tcp", rt.opts.listen); err != nil {
			return fmt.Errorf("cannot run: cannot listen: %w", err)
		}
	}
	// These tasks outlive the work: the pages show how it stops, and the Lease is released after it.
	around := newTasks(context.WithoutCancel(ctx), fail)
	if listener != nil {
		around.add(task{"http", func(ctx context.Context) error { return rt.serveOn(ctx, listener) }})
	}
	if election := rt.leadership.run(); election != nil {
		around.add(task{"election", election})
	}
	stopServing := rt.serve(ctx, fail)
	err := rt.lead(ctx)
	rt.phase.Store(phaseStopping)
	return errors.Join(err, stopServing(), around.stop(grace+httpDrain), rt.late())
}

// begin returns the mistakes in the declarations.
func (rt *Runtime) begin() error {
	checks, err := rt.declared.begin()
	if err != nil {
		return fmt.Errorf("cannot run: %w", err)
	}
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	if err := errors.Join(errs...); err != nil {
		rt.close()
		return fmt.Errorf("cannot run: %w", err)
	}
	return nil
}

func (rt *Runtime) close() {
	for _, c := range rt.declared.members() {
		c.conn.close()
	}
}

// serveOn serves the Handler until the context ends. It closes the listener.
func (rt *Runtime) serveOn(ctx context.Context, listener net.Listener) error {
	rt.log.InfoContext(ctx, "serving health, metrics and debug pages", "address", listener.Addr().String())
	return serve.New(rt.Handler(), serve.Options{Drain: httpDrain, Logger: rt.log}).Run(ctx, listener)
}

// serve runs the functions of AddAlways, and the caches for them, until stop is called.
func (rt *Runtime) serve(ctx context.Context, fail func(error)) (stop func() error) {
	always := rt.declared.tasks()
	if len(always) == 0 {
		return func() error { return nil }
	}
	caches := newTasks(context.WithoutCancel(ctx), fail)
	runCaches(rt.declared.members(), caches)
	tasks := newTasks(context.WithoutCancel(ctx), fail)
	for _, t := range always {
		tasks.add(t)
	}
	return func() error { return errors.Join(tasks.stop(rt.opts.stopTimeout), caches.stop(grace)) }
}

// lead waits for leadership, or takes slots, and works until the context ends or leadership is lost.
func (rt *Runtime) lead(ctx context.Context) error {
	work := func(ctx context.Context) error { return rt.work(ctx, rt.opts.drain) }
	switch {
	case rt.sharing != nil:
		var participants []group.Participant
		for _, c := range rt.declared.members() {
			participants = append(participants, c.observers)
		}
		participants = append(participants, rt.sharing.sources)
		for _, c := range rt.declared.overseen() {
			participants = append(participants, c)
		}
		defer context.AfterFunc(ctx, func() { rt.phase.Store(phaseStopping) })()
		rt.sharing.cover(rt.declared.members(), rt.opts.source)
		return rt.sharing.hold(ctx, participants, work)
	case rt.leadership.election == nil:
		return work(ctx)
	}
	rt.phase.Store(phaseStandby)
	return rt.leadership.hold(ctx, work)
}

// work runs caches, observers and tasks until the context ends.
func (rt *Runtime) work(ctx context.Context, drain time.Duration) error {
	rt.phase.Store(phaseStarting)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	caches := newTasks(context.WithoutCancel(ctx), fail) // the caches outlive their readers
	clusters := rt.declared.members()
	if !rt.declared.serves() {
		runCaches(clusters, caches)
	}
	err := each(clusters, func(c *Host) error { return ignoreEnd(ctx, c.start(ctx)) })
	if err == nil && ctx.Err() == nil {
		err = rt.runTasks(ctx, fail)
	}
	rt.phase.Store(phaseStopping)
	if errors.Is(context.Cause(ctx), ErrNotLeading) {
		drain = 0 // no result of the observers can be written any more
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(0, drain))
	defer cancel()
	err = errors.Join(err, each(clusters, func(c *Host) error { return c.observers.Stop(draining) }))
	return errors.Join(err, caches.stop(grace))
}

func runCaches(clusters []*Host, in *tasks) {
	for _, c := range clusters {
		in.add(task{"cache", func(ctx context.Context) error {
			return c.conn.during(ctx, func() error { return c.conn.cache.Run(ctx) })
		}})
	}
}

// runTasks runs the added functions until the context ends.
func (rt *Runtime) runTasks(ctx context.Context, fail func(error)) error {
	tasks := newTasks(ctx, fail)
	tasks.add(task{"synchronization", rt.awaitSync})
	rt.additions.start(tasks)
	<-ctx.Done()
	rt.phase.Store(phaseStopping)
	return tasks.stop(rt.opts.stopTimeout)
}

// each calls a function for all clusters concurrently and joins the errors in the order of the clusters.
func each(clusters []*Host, fn func(*Host) error) error {
	errs := make([]error, len(clusters))
	var all sync.WaitGroup
	for i, c := range clusters {
		all.Go(func() {
			if errs[i] = fn(c); errs[i] != nil && c.name != "" {
				errs[i] = fmt.Errorf("cluster %q: %w", c.name, errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// ignoreEnd returns nil if the error only reports the end of the context.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// awaitSync sets the phase to ready when all observers have handled their initial objects.
func (rt *Runtime) awaitSync(ctx context.Context) error {
	if err := rt.WaitSynced(ctx); err != nil {
		if ctx.Err() == nil { // a failure policy stopped an observer: the runtime does not become ready
			rt.log.ErrorContext(ctx, "not all observers will be synced", "error", err)
		}
		return nil
	}
	if rt.phase.CompareAndSwap(phaseStarting, phaseReady) {
		rt.log.InfoContext(ctx, "all observers are synced")
	}
	return nil
}

// Handler serves the runtime's own pages:
//
//	/healthz           200 while the API server has confirmed the state of every watched resource within the bound,
//	                   else 503 with the stale resources. Resources that the API server does not serve or forbids are
//	                   listed and do not count, since a restart does not change that
//	/readyz            200 when additionally every resource has been listed and every observer has handled its initial
//	                   objects, or when another process leads; else 503 with the reasons. In a process with AddAlways,
//	                   200 when every resource has been listed once and is not stale, whether or not the process leads;
//	                   the answer also lists the reasons why the leader is not ready yet, and later refusals. Kinds
//	                   that the process converts itself (admission.Convert) need not be listed. Checks of AddReady
//	                   must succeed in every case
//	/metrics           metrics in the format of Prometheus
//	/debug/            an index of the pages
//	/debug/sources     the resources that observers, reconcilers or clients watch, and their state
//	/debug/controllers the controllers and their failing objects: error, attempts, next try
//	/debug/observers   the observers, with selector, declaration and progress
//	/debug/flows       live fibers, see Flows
//	/debug/pprof/      profiles of the process, such as goroutine?debug=2, for go tool pprof. They slow the process down
//	                   and show what it executes; without GuardDebug they answer only callers on the same machine
//
// It also serves the pages of Handle. The debug pages are text, or JSON with ?format=json. They need no authentication
// unless GuardDebug adds it.
func (rt *Runtime) Handler() http.Handler { return rt.pages }

// GuardDebug wraps all pages below /debug/, including those of Handle, with guard. The guard passes a request on to
// pages if the caller may see the page. GuardDebug is safe for concurrent use; the last call wins.
// console.Options.GuardDebug makes the console the guard.
func (rt *Runtime) GuardDebug(guard func(pages http.Handler) http.Handler) {
	if guard == nil {
		rt.declared.mistake(errors.New("cannot guard the debug pages: the guard is nil"))
		return
	}
	rt.pages.guard(guard)
}

// Handle adds a page. The pattern is that of http.ServeMux; Run returns an error for a pattern that is malformed or
// taken. The index of /debug/ lists pages below it.
func (rt *Runtime) Handle(pattern string, page http.Handler) {
	rt.declared.mistake(rt.pages.add(pattern, page))
}

// Shards returns the group membership of this runtime, or nil without WithShards. It tells which slots the runtime
// holds and whether it may still send requests for a slot.
func (rt *Runtime) Shards() *group.Group {
	if rt.sharing == nil {
		return nil
	}
	return rt.sharing.group
}

// WaitSynced waits until every observer of every cluster has handled its initial objects. If the context ends first,
// the error names the observers that have not, with the reasons.
func (rt *Runtime) WaitSynced(ctx context.Context) error {
	return each(rt.declared.members(), func(c *Host) error { return c.observers.WaitSynced(ctx) })
}

// Describe returns the sources and observers of every cluster, with their declarations and their current state.
func (rt *Runtime) Describe() inspect.Sources { return describe(rt.declared.members()) }
