package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/store"
)

// Runtime runs what was declared on one cluster. Make it with [New]. It is safe for concurrent use.
type Runtime struct {
	opts      options
	log       *slog.Logger
	err       error // of New, returned by Run
	calls     *call.Client
	cache     *store.Cache
	client    *client.Client
	observers *observe.Registry

	mu    sync.Mutex
	added []task
	ran   bool
	ready chan struct{} // closed when all observers are synced
}

// task is something that runs with the runtime.
type task struct {
	name string
	run  func(context.Context) error
}

var _ observe.Host = (*Runtime)(nil)

// New returns a Runtime for a cluster. It sends nothing, and an error of the configuration is returned by Run, so that
// declarations need no error handling of their own.
func New(cfg *rest.Config, opts ...Option) *Runtime {
	rt := &Runtime{ready: make(chan struct{})}
	for _, o := range opts {
		o(&rt.opts)
	}
	rt.opts.complete()
	rt.log = rt.opts.logger
	rt.err = rt.connect(cfg)
	rt.observers = observe.NewRegistry(observe.RegistryOptions{
		Scheme: rt.opts.scheme, Stores: rt.cache, Logger: rt.log, Degraded: rt.opts.degraded,
	})
	return rt
}

func (o *options) complete() {
	if o.scheme == nil {
		o.scheme = scheme.Scheme
	}
	if o.logger == nil {
		o.logger = slog.New(slog.DiscardHandler)
	}
	if o.registry == nil {
		o.registry = prometheus.NewRegistry()
	}
	if o.staleness <= 0 {
		o.staleness = DefaultStaleness
	}
	if o.stopTimeout <= 0 {
		o.stopTimeout = DefaultStopTimeout
	}
}

func (rt *Runtime) connect(cfg *rest.Config) error {
	if cfg == nil {
		return errors.New("cannot make a runtime: no rest.Config")
	}
	metrics := call.NewMetrics()
	var err error
	if rt.calls, err = call.New(call.Options{Config: cfg, Logger: rt.log, Metrics: metrics}); err != nil {
		return fmt.Errorf("cannot make a runtime: %w", err)
	}
	mapper := rt.opts.mapper
	if mapper == nil {
		if mapper, err = newMapper(cfg); err != nil {
			return fmt.Errorf("cannot make a runtime: %w", err)
		}
	}
	if rt.cache, err = store.NewCache(store.CacheOptions{
		Config: cfg, Scheme: rt.opts.scheme, Mapper: mapper, Source: rt.opts.source, Logger: rt.log,
		Store: store.Options{HotBytes: rt.opts.hotBytes},
	}); err != nil {
		return fmt.Errorf("cannot make a runtime: %w", err)
	}
	if rt.client, err = client.New(client.Options{
		Config: cfg, Call: rt.calls, Cache: rt.cache, Scheme: rt.opts.scheme, Mapper: mapper, Logger: rt.log,
		FieldOwner: rt.opts.fieldOwner,
	}); err != nil {
		return fmt.Errorf("cannot make a runtime: %w", err)
	}
	return errors.Join(rt.opts.registry.Register(metrics))
}

// Observers returns the registry of sources and observers; it makes the Runtime an observe.Host.
func (rt *Runtime) Observers() *observe.Registry { return rt.observers }

// Client reads what is observed and writes to the cluster; a write is seen by the next read. It is nil if New failed.
func (rt *Runtime) Client() *client.Client { return rt.client }

// Cache returns the stores of the runtime. It is nil if New failed.
func (rt *Runtime) Cache() *store.Cache { return rt.cache }

// Calls makes requests under the runtime's policy. It is nil if New failed.
func (rt *Runtime) Calls() *call.Client { return rt.calls }

// Registry returns where the runtime's metrics are.
func (rt *Runtime) Registry() *prometheus.Registry { return rt.opts.registry }

// Add has fn run from when the observers are started until it returns or the runtime stops, which cancels its context. An
// error that it returns stops the runtime. Add must be called before Run.
func (rt *Runtime) Add(name string, fn func(ctx context.Context) error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.added = append(rt.added, task{name, fn})
}

// Run starts everything and returns when the context ends or something fails, after all of it has stopped: what was added
// first, then the observers, then the cache. It returns nil when the context's end was the only reason; else what failed,
// joined. It can be called once.
func (rt *Runtime) Run(ctx context.Context) error {
	if err := rt.begin(); err != nil {
		return err
	}
	defer rt.calls.Close()
	defer rt.client.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	// The cache outlives what reads from it.
	cacheCtx, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	var cache sync.WaitGroup
	var cacheErr error
	cache.Go(func() {
		if cacheErr = rt.cache.Run(cacheCtx); cacheErr != nil {
			stop(cacheErr)
		}
	})
	err := rt.observers.Start(ctx)
	if err == nil {
		err = rt.serve(ctx, stop)
	}
	err = errors.Join(err, rt.observers.Stop())
	stopCache()
	cache.Wait()
	return errors.Join(err, cacheErr)
}

func (rt *Runtime) begin() error {
	if rt.err != nil {
		return rt.err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.ran {
		return errors.New("cannot run: the runtime has been run already")
	}
	rt.ran = true
	return nil
}

// serve runs what was added, until the context ends or one of it fails.
func (rt *Runtime) serve(ctx context.Context, stop context.CancelCauseFunc) error {
	rt.mu.Lock()
	tasks := rt.added
	rt.mu.Unlock()
	if rt.opts.listen != "" {
		tasks = append(tasks, task{"http", rt.listen})
	}
	tasks = append(tasks, task{"sync", rt.awaitSync})
	errs := make(chan error, len(tasks))
	for _, t := range tasks {
		go func() { errs <- protect(ctx, t) }()
	}
	var all []error
	running := len(tasks)
	ended := ctx.Done()
	var late <-chan time.Time
	for running > 0 {
		select {
		case err := <-errs:
			running--
			if err != nil && ctx.Err() == nil {
				stop(err)
			}
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.Cause(ctx)) || errors.Is(err, errTask) {
				all = append(all, err)
			}
		case <-ended:
			ended = nil
			timer := time.NewTimer(rt.opts.stopTimeout)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return errors.Join(append(all, fmt.Errorf("%d tasks did not stop within %v", running, rt.opts.stopTimeout))...)
		}
	}
	<-ctx.Done() // tasks may end early; the observers go on
	return errors.Join(all...)
}

var errTask = errors.New("task failed")

// protect runs a task and names it in its error. A panic is an error.
func protect(ctx context.Context, t task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %s panicked: %v", errTask, t.name, v)
		}
	}()
	if err := t.run(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return fmt.Errorf("%w: %s: %w", errTask, t.name, err)
	}
	return nil
}

// awaitSync notes when all observers have handled their initial objects.
func (rt *Runtime) awaitSync(ctx context.Context) error {
	if rt.observers.WaitSynced(ctx) == nil {
		close(rt.ready)
		rt.log.InfoContext(ctx, "all observers are synced")
	}
	return nil
}

// WaitSynced returns when every observer has handled its initial objects, or at the end of the context, with the names of
// those that have not.
func (rt *Runtime) WaitSynced(ctx context.Context) error { return rt.observers.WaitSynced(ctx) }

// Describe says which selector is produced where and observed by whom, and how each is doing.
func (rt *Runtime) Describe() observe.Description { return rt.observers.Describe() }
