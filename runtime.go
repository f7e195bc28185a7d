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
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/interrupt"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/profile"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
)

// Errors that Run may return, besides those of what it runs.
var (
	// errRan: a Runtime can be run once.
	errRan = errors.New("the runtime has been run already")
	// ErrNotLeading: another process leads, or may lead, now.
	ErrNotLeading = lease.ErrNotLeading
)

// Runtime runs what was declared, on one cluster or several. Make it with [New]. It is safe for concurrent use.
type Runtime struct {
	// Host is the API server that New was given.
	*Host

	opts    options
	log     *slog.Logger
	phase   atomic.Value // phase
	sharing *sharing     // nil: it works on everything
	heard   atomic.Bool  // all that is watched has been listed once, see readyz
	mux     *http.ServeMux

	mu          sync.Mutex
	err         error // of declarations, returned by Run
	clusters    []*Host
	waiting     []task
	tasks       *tasks // while they run
	always      []task // see AddAlways
	pages       []string
	parts       []part // see AddReady
	controllers []*reconcile.Controller
	explainers  []why.Explainer            // see Explain
	engine      *flow.Engine               // of Flows, or made when it was asked for first
	seen        map[*cache.Store]time.Time // when the health pages looked at it first
	ran         bool

	guarded  atomic.Pointer[http.Handler] // the pages below /debug/ behind their guard; nil: there is none
	profiles profile.Pages

	leading atomic.Bool // of those of WithLeadership, this process works
}

// phase is what a runtime is doing, as its health pages tell it.
type phase string

const (
	phaseNew      phase = "not started"
	phaseStandby  phase = "standby"
	phaseStarting phase = "starting: observers are not synced yet"
	phaseReady    phase = "ready"
	phaseStopping phase = "stopping"
)

// New returns a Runtime for a cluster. It sends nothing, and an error of the configuration is returned by Run, so that
// declarations need no error handling of their own.
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

// elect refuses names that are missing, as of variables that are not set: nobody would be elected, or all of them.
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

// Join adds a cluster to the runtime, which starts, stops and shows it together with the first one. Selectors are
// apart, so the same declarations can be made on several clusters. Options add to those of New; those that concern the
// runtime as a whole have no effect. Join must be called before Run, and a name can be used once: else Run returns the
// mistake, with file and line. If Run has begun, the mistake is logged at once, Run returns it at the end, and the
// Host is closed: nothing of it runs.
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

// Flows has the runtime look after an engine: it logs and traces where the runtime does, unless it has a logger or a
// tracer of its own, its metrics are registered, its fibers are shown at /debug/flows, and at the end they may finish
// during the drain before they are cancelled. A runtime has one engine, which is given before what uses
// [Host.Engine] is declared.
func (rt *Runtime) Flows(e *flow.Engine) {
	if e == nil {
		rt.mistake(errors.New("cannot look after an engine: it is nil"))
		return
	}
	rt.mu.Lock()
	if rt.engine != nil && rt.engine != e {
		rt.mistakeLocked(errors.New("cannot look after an engine: there is one already"))
		rt.mu.Unlock()
		return
	}
	rt.engine = e
	rt.mu.Unlock()
	rt.look(e)
}

// Engine returns the engine that the runtime looks after: that of Flows, or else one of its own, made when it is asked
// for first.
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

// look has an engine log, show itself and end with the runtime.
func (rt *Runtime) look(e *flow.Engine) {
	e.InheritLogger(rt.log)
	e.InheritTracerProvider(rt.opts.tracers)
	if rt.sharing != nil {
		e.RequireDurable()
	}
	if err := rt.opts.registry.Register(e.Collector()); err != nil {
		rt.mistake(fmt.Errorf("cannot look after an engine: %w", err))
	}
	rt.Handle("/debug/flows", e.DebugHandler())
	rt.Add("flows", func(ctx context.Context) error {
		<-ctx.Done()
		base := context.WithoutCancel(ctx)
		drain, cancel := context.WithTimeout(base, max(0, rt.opts.drain))
		defer cancel()
		_ = e.Drain(drain) // what has not ended is cancelled
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

// mistakeLocked has Run return a mistake: before it begins, or at its end one that is made meanwhile, which is logged
// besides.
func (rt *Runtime) mistakeLocked(err error) {
	if rt.ran {
		rt.log.Error("mistake in a declaration", "error", err)
	}
	rt.err = errors.Join(rt.err, err)
}

// late returns the mistakes that were made while it ran.
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

// Run checks the declarations of sources, observers and controllers, all of them before any request is made, then
// starts: the pages of WithListen, the election, the caches, the observers, and what was added, controllers among it.
// It returns when the context ends, a signal comes, leadership is lost or something fails, after all of it has
// stopped in the reverse order. What was added with AddAlways runs from before the election until all other work has
// stopped. The error is nil if the end of the context, or a signal, was the only reason; otherwise it joins what
// failed, the first failure first, and last the mistakes in what was declared while it ran, such as a late Join or an
// observer of a selector that still has no source. Run can be called once.
func (rt *Runtime) Run(ctx context.Context) error {
	if err := rt.begin(); err != nil {
		return err
	}
	defer rt.close()
	defer rt.phase.Store(phaseStopping)
	if len(rt.opts.signals) > 0 {
		var restore func()
		ctx, restore = interrupt.Context(ctx, rt.opts.signals...) // the second signal is not ours
		defer restore()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	// What outlives the work: pages show how it stops, and the lease is given back after it.
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

// begin says what is wrong with the declarations.
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

// lead works while this process leads.
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
	bound := client.Bind(ctx, client.Binding{Fence: func() error { return l.Fence(term) }, RequireVersion: true})
	bound, end := context.WithCancelCause(bound)
	defer end(nil)
	var lost atomic.Bool
	forget := context.AfterFunc(term, func() {
		if ctx.Err() == nil { // else a term that is made of ctx has ended with it
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
	caches := newTasks(context.WithoutCancel(ctx), fail) // they outlive who reads from them
	if !rt.serves() {
		rt.runCaches(caches)
	}
	err := rt.each(func(c *Host) error { return ignoreEnd(ctx, c.start(ctx)) })
	if err == nil && ctx.Err() == nil {
		err = rt.runTasks(ctx, fail)
	}
	rt.phase.Store(phaseStopping)
	if errors.Is(context.Cause(ctx), ErrNotLeading) {
		drain = 0 // nothing that they do is of use
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

// runTasks runs what was added until the context ends.
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

// each calls a function for all clusters at once and joins the errors in their order.
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

// ignoreEnd returns nil for an error that only says that the context has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// awaitSync notes when all observers have handled their initial objects.
func (rt *Runtime) awaitSync(ctx context.Context) error {
	if err := rt.WaitSynced(ctx); err != nil {
		if ctx.Err() == nil { // an observer was stopped by its policy: others go on, but ready is another thing
			rt.log.ErrorContext(ctx, "not all observers will be synced", "error", err)
		}
		return nil
	}
	if rt.phase.CompareAndSwap(phaseStarting, phaseReady) {
		rt.log.InfoContext(ctx, "all observers are synced")
	}
	return nil
}

// WaitSynced returns when every observer of every cluster has handled its initial objects, or at the end of the
// context, with the names of those that have not, and why.
func (rt *Runtime) WaitSynced(ctx context.Context) error {
	return rt.each(func(c *Host) error { return c.observers.WaitSynced(ctx) })
}

// Describe says which selector is produced where and observed by whom, on every cluster, and how each is doing.
func (rt *Runtime) Describe() observe.Description {
	all := observe.Description{Sources: []observe.SourceDescription{}}
	for _, c := range rt.members() {
		d := c.observers.Describe()
		all.Sources = append(all.Sources, d.Sources...)
		all.Unmatched = append(all.Unmatched, d.Unmatched...)
	}
	return all
}
