package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/interrupt"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/profile"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
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

	opts    options
	log     *slog.Logger
	phase   atomic.Value // phase
	sharing *sharing     // nil: no sharding
	heard   atomic.Bool  // every watched resource has been listed once, see readyToServe
	mux     *http.ServeMux

	mu          sync.Mutex
	err         error // mistakes in declarations, returned by Run
	clusters    []*Host
	waiting     []task
	tasks       *tasks // set while the tasks run
	always      []task // see AddAlways
	pages       []string
	parts       []part // see AddReady
	controllers []*reconcile.Controller
	explainers  []why.Explainer            // see Explain
	engine      *flow.Engine               // the engine of Flows, or one made at the first call of Engine
	seen        map[*cache.Store]time.Time // first health check that saw the store
	ran         bool

	guarded  atomic.Pointer[http.Handler] // serves the pages below /debug/; nil: no guard
	profiles profile.Pages

	leading atomic.Bool // this process leads; used only with WithLeadership
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
	rt := &Runtime{mux: http.NewServeMux()}
	rt.phase.Store(phaseNew)
	for _, o := range opts {
		if o != nil {
			o(&rt.opts)
		}
	}
	rt.opts.complete()
	rt.log = rt.opts.logger
	if rt.opts.shards != nil {
		rt.err = rt.share(cfg)
	}
	rt.Host = newHost(rt, "", cfg, rt.opts)
	rt.clusters = []*Host{rt.Host}
	if v := reflect.ValueOf(rt.opts.leadership); v.IsValid() && v.Kind() == reflect.Pointer && v.IsNil() {
		rt.err = errors.New("cannot elect a leader: WithLeadership was given nil")
	}
	if rt.opts.lease != nil && rt.opts.leadership == nil && cfg != nil {
		var err error
		rt.opts.leadership, err = rt.elect(cfg, rt.opts.lease[0], rt.opts.lease[1])
		rt.err = errors.Join(rt.err, err)
	}
	if rt.opts.leadership != nil {
		rt.err = errors.Join(rt.err, rt.opts.registry.Register(leadingMetric(&rt.leading)))
	}
	rt.ownPages()
	if rt.opts.console != nil && rt.err == nil {
		rt.openConsole()
	}
	return rt
}

// elect refuses an empty namespace or name, such as the value of an unset variable. With it no process, or every
// process, would be elected.
func (rt *Runtime) elect(cfg *rest.Config, namespace, name string) (reconcile.Leadership, error) {
	if namespace == "" || name == "" {
		return nil,
			fmt.Errorf(
				"cannot elect a leader: WithLeaderElection needs the namespace and the name of a Lease, and has %q and %q",
				namespace, name,
			)
	}
	return lease.New(cfg, lease.Options{
		Namespace: namespace, Name: name, Logger: rt.log, TracerProvider: rt.opts.tracers,
	})
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
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.ran:
		rt.mistakeLocked(fmt.Errorf("%s: cannot join cluster %q: %w", at, name, errRan))
		c.close()
		c.unregister()
		return c
	case name == "":
		rt.mistakeLocked(fmt.Errorf("%s: cannot join cluster: it has no name", at))
	case slices.ContainsFunc(rt.clusters, func(other *Host) bool { return other.name == name }):
		rt.mistakeLocked(fmt.Errorf("%s: cannot join cluster: another one is named %q", at, name))
	}
	rt.clusters = append(rt.clusters, c)
	return c
}

// Flows makes the runtime manage an engine. The engine uses the logger and the tracer of the runtime unless it has its
// own. The runtime registers the engine's metrics and shows its fibers at /debug/flows. At the end the fibers may
// finish during the drain before they are cancelled. A runtime has one engine. Flows must be called before any
// declaration that uses [Host.Engine].
func (rt *Runtime) Flows(e *flow.Engine) {
	if e == nil {
		rt.mistake(errors.New("cannot add an engine: it is nil"))
		return
	}
	rt.mu.Lock()
	if rt.engine != nil && rt.engine != e {
		rt.mistakeLocked(errors.New("cannot add an engine: there is one already"))
		rt.mu.Unlock()
		return
	}
	rt.engine = e
	rt.mu.Unlock()
	rt.look(e)
}

// Engine returns the engine that the runtime manages: the engine of Flows, or one that the first call makes.
func (c *Host) Engine() *flow.Engine {
	rt := c.rt
	rt.mu.Lock()
	e := rt.engine
	made := e == nil
	if made {
		e = flow.NewEngine(flow.EngineOptions{})
		rt.engine = e
	}
	rt.mu.Unlock()
	if made {
		rt.look(e)
	}
	return e
}

// look connects an engine to the runtime's logger, tracer, metrics, pages and stop.
func (rt *Runtime) look(e *flow.Engine) {
	e.Inherit(rt.log, rt.opts.tracers, rt.sharing != nil)
	if err := rt.opts.registry.Register(e.Collector()); err != nil {
		rt.mistake(fmt.Errorf("cannot add an engine: %w", err))
	}
	rt.Handle("/debug/flows", e.DebugHandler())
	rt.Add("flows", func(ctx context.Context) error {
		<-ctx.Done()
		base := context.WithoutCancel(ctx)
		drain, cancel := context.WithTimeout(base, max(0, rt.opts.drain))
		defer cancel()
		_ = e.Drain(drain) // Close cancels the remaining fibers
		bound, stop := context.WithTimeout(base, grace)
		defer stop()
		return e.Close(bound)
	})
}

func (rt *Runtime) mistake(err error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.mistakeLocked(err)
}

// mistakeLocked records a mistake that Run returns. After the start of Run the mistake is also logged.
func (rt *Runtime) mistakeLocked(err error) {
	if rt.ran {
		rt.log.Error("mistake in a declaration", "error", err)
	}
	rt.err = errors.Join(rt.err, err)
}

// late returns the mistakes that were made after the start of Run.
func (rt *Runtime) late() error {
	errs := []error{}
	for _, c := range rt.members() {
		errs = append(errs, c.observers.Mistakes())
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return errors.Join(append(errs, rt.err)...)
}

func (rt *Runtime) add(t task) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.tasks != nil {
		rt.tasks.add(t)
		return
	}
	rt.waiting = append(rt.waiting, t)
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

	// These tasks outlive the work: the pages show how it stops, and the Lease is released after it.
	around := newTasks(context.WithoutCancel(ctx), fail)
	if rt.opts.listen != "" {
		around.add(task{"http", rt.listen})
	}
	l := rt.opts.leadership
	if election, ok := l.(interface{ Run(context.Context) error }); ok {
		around.add(task{"election", func(ctx context.Context) error { return election.Run(inherit.With(ctx, rt.log)) }})
	}
	stopServing := rt.serve(ctx, fail)
	err := rt.lead(ctx, l)
	rt.phase.Store(phaseStopping)
	return errors.Join(err, stopServing(), around.stop(grace+httpDrain), rt.late())
}

// begin returns the mistakes in the declarations.
func (rt *Runtime) begin() error {
	rt.mu.Lock()
	if rt.ran {
		rt.mu.Unlock()
		return fmt.Errorf("cannot run: %w", errRan)
	}
	rt.ran = true
	errs := []error{rt.err}
	var checks []func() error
	for _, c := range rt.clusters {
		checks = append(append(checks, func() error { return c.err }, c.observers.Check), c.checks...)
	}
	rt.mu.Unlock()
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
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.closeLocked()
}

func (rt *Runtime) closeLocked() {
	for _, c := range rt.clusters {
		c.close()
	}
}

// lead waits for leadership and works until the context ends or leadership is lost.
func (rt *Runtime) lead(ctx context.Context, l reconcile.Leadership) error {
	switch {
	case rt.sharing != nil:
		return rt.workShared(ctx)
	case l == nil:
		return rt.work(ctx, rt.opts.drain)
	}
	rt.phase.Store(phaseStandby)
	term, done, err := l.Lead(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer done()
	rt.leading.Store(true)
	defer rt.leading.Store(false)
	bound := binding.With(ctx, binding.Binding{Fence: func() error { return l.Fence(term) }, RequireVersion: true})
	bound, end := context.WithCancelCause(bound)
	defer end(nil)
	var lost atomic.Bool
	forget := context.AfterFunc(term, func() {
		if ctx.Err() == nil { // else term may be derived from ctx and has ended with it
			lost.Store(true)
			rt.leading.Store(false)
			end(ErrNotLeading)
		}
	})
	err = rt.work(bound, rt.opts.drain)
	if forget(); lost.Load() {
		rt.log.ErrorContext(ctx, "leadership lost")
		err = errors.Join(ErrNotLeading, err)
	}
	return err
}

// work runs caches, observers and tasks until the context ends.
func (rt *Runtime) work(ctx context.Context, drain time.Duration) error {
	rt.phase.Store(phaseStarting)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	caches := newTasks(context.WithoutCancel(ctx), fail) // the caches outlive their readers
	if !rt.serves() {
		rt.runCaches(caches)
	}
	err := rt.each(func(c *Host) error { return ignoreEnd(ctx, c.start(ctx)) })
	if err == nil && ctx.Err() == nil {
		err = rt.runTasks(ctx, fail)
	}
	rt.phase.Store(phaseStopping)
	if errors.Is(context.Cause(ctx), ErrNotLeading) {
		drain = 0 // no result of the observers can be written any more
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(0, drain))
	defer cancel()
	err = errors.Join(err, rt.each(func(c *Host) error { return c.observers.Stop(draining) }))
	return errors.Join(err, caches.stop(grace))
}

func (rt *Runtime) runCaches(in *tasks) {
	for _, c := range rt.members() {
		in.add(task{"cache", c.cache.Run})
	}
}

// runTasks runs the added functions until the context ends.
func (rt *Runtime) runTasks(ctx context.Context, fail func(error)) error {
	tasks := newTasks(ctx, fail)
	tasks.add(task{"synchronization", rt.awaitSync})
	rt.mu.Lock()
	rt.tasks = tasks
	for _, t := range rt.waiting {
		tasks.add(t)
	}
	rt.waiting = nil
	rt.mu.Unlock()
	<-ctx.Done()
	rt.phase.Store(phaseStopping)
	return tasks.stop(rt.opts.stopTimeout)
}

// members returns the clusters.
func (rt *Runtime) members() []*Host {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.clusters)
}

// each calls a function for all clusters concurrently and joins the errors in the order of the clusters.
func (rt *Runtime) each(fn func(*Host) error) error {
	clusters := rt.members()
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
		if ctx.Err() == nil { // a failure policy stopped an observer: others continue, but the runtime does not become ready
			rt.log.ErrorContext(ctx, "not all observers will be synced", "error", err)
		}
		return nil
	}
	if rt.phase.CompareAndSwap(phaseStarting, phaseReady) {
		rt.log.InfoContext(ctx, "all observers are synced")
	}
	return nil
}

// WaitSynced waits until every observer of every cluster has handled its initial objects. If the context ends first,
// the error names the observers that have not, with the reasons.
func (rt *Runtime) WaitSynced(ctx context.Context) error {
	return rt.each(func(c *Host) error { return c.observers.WaitSynced(ctx) })
}

// Describe returns the sources and observers of every cluster, with their declarations and their current state.
func (rt *Runtime) Describe() inspect.Sources {
	all := inspect.Sources{Sources: []inspect.Source{}}
	for _, c := range rt.members() {
		d := c.observers.Describe()
		all.Sources = append(all.Sources, d.Sources...)
		all.Unmatched = append(all.Unmatched, d.Unmatched...)
	}
	return all
}
