package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/shard/group"
)

// hotBytes bounds the decoded objects of each store. It is small because most operations wait.
const hotBytes = 1 << 20

// Run runs a controller until the context ends. namespace is the default namespace. It also contains the callback key
// and the Lease unless the options name another one. If ready is not nil, it is called with the address of the HTTP API
// once that is served.
func Run(
	ctx context.Context, config *rest.Config, namespace string, o Options, log *slog.Logger, ready func(net.Addr),
) error {
	spans, err := newTracing(ctx, log)
	if err != nil {
		return err
	}
	defer spans.stop()
	if err := o.check(); err != nil {
		return err
	}
	listening, err := o.Serve.listen(log)
	if err != nil {
		return err
	}
	defer listening.close()
	types := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(types), scheme.AddToScheme(types)); err != nil {
		return err
	}
	o.system = cmp.Or(o.system, namespace)
	c := &controller{
		o: o, config: config, namespace: namespace, log: log, tracers: spans.tracers(),
		listeners: listening,
	}
	opts := []fairlead.Option{
		fairlead.WithScheme(types), fairlead.WithLogger(log), fairlead.WithHotBytes(hotBytes),
		fairlead.WithStopTimeout(o.Drain + StopMargin), fairlead.WithTracerProvider(c.tracers),
	}
	if err := c.coordinate(); err != nil {
		return err
	}
	if c.election != nil {
		opts = append(opts, fairlead.WithLeadership(c.election))
	}
	c.rt = fairlead.New(config, opts...)
	if c.rt.Calls() == nil {
		return c.rt.Run(ctx) // reports the configuration problem
	}
	if err := checkCluster(ctx, c.rt.Calls(), config); err != nil {
		if ctx.Err() != nil {
			return nil // it was stopped
		}
		return err
	}
	defer c.close()
	if err := c.connect(ctx, ready); err != nil {
		return err
	}
	err = c.rt.Run(ctx)
	if c.election != nil && errors.Is(err, fairlead.ErrNotLeading) {
		err = fmt.Errorf("%w: %w", errDeposed, err)
	}
	return err
}

// checkCluster returns a one-line error if the controller cannot work with the cluster.
func checkCluster(ctx context.Context, calls *call.Client, config *rest.Config) error {
	_, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbList, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Query: url.Values{"limit": {"1"}},
	}, call.Policy{Retries: 2})
	var failed *call.Error
	switch {
	case err == nil, apierrors.IsForbidden(err): // single namespaces may be readable
		return nil
	case apierrors.IsNotFound(err):
		return errors.New("the cluster has no Operations yet: fairlead crds | kubectl apply --server-side -f -")
	case errors.As(err, &failed) && failed.Code == 0:
		return fmt.Errorf("the API server at %s does not answer: %w", config.Host, err)
	default:
		return fmt.Errorf("cannot use the API server at %s: %w", config.Host, err)
	}
}

// controller creates the parts of Run and connects them. It has no state of its own that changes while they run.
type controller struct {
	o         Options
	config    *rest.Config
	namespace string
	log       *slog.Logger
	tracers   trace.TracerProvider // nil: no tracing
	listeners *listeners
	election  *election // nil without --leader-elect
	sharing   *sharing  // nil without --shards
	rt        *fairlead.Runtime
	closers   []func() // of the parts that exist, in the order of their creation
}

// coordinate creates the leader election or the membership in the group, which start with the runtime.
func (c *controller) coordinate() (err error) {
	address := addressOf(c.o.Serve.scheme(), c.listeners.api)
	if c.o.sharing.group != "" {
		c.sharing, err = newSharing(c.config, c.o.sharing, group.Options{
			Namespace: c.o.system, Leader: leaseName, Logger: c.log, Address: address, TracerProvider: c.tracers,
			Drain: max(c.o.Drain, time.Millisecond),
		})
	}
	if err == nil && c.o.leaderElect {
		c.election, err = newElection(c.config, lease.Options{
			Namespace: c.o.system, Name: leaseName, Address: address, TracerProvider: c.tracers, Logger: c.log,
		})
	}
	return err
}

// connect creates the parts that need the runtime, connects them and adds them to the runtime.
func (c *controller) connect(ctx context.Context, ready func(net.Addr)) error {
	objects, err := acquireCaches(c.rt.Cache(), c.o.namespaces, c.o.Targets.anyCredentials(), c.sharing.source())
	if err != nil {
		return err
	}
	c.closers = append(c.closers, objects.release)
	c.sharing.cover(c.o.namespaces, objects.operations.Store)
	forbidden, err := newTargets(c.config, c.rt.Calls(), c.log)
	if err != nil {
		return err
	}
	c.warnOfSystem(ctx)
	scheduler, err := operations.NewScheduler(operations.Options{
		Config: c.config, Calls: c.rt.Calls(), Namespace: c.namespace, Logger: c.log,
	})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, scheduler.Close)
	if c.listeners.api != nil && c.o.Serve.publicURL == "" {
		c.o.Serve.publicURL = c.o.Serve.scheme() + "://" + c.listeners.api.Addr().String()
	}
	var key []byte
	if c.listeners.api != nil {
		if key, err = callbackKey(ctx, c.rt.Calls(), c.o.system); err != nil {
			return err
		}
	}
	runner, err := c.newExecutor(objects, forbidden, key)
	if err != nil {
		return err
	}
	c.rt.Explain(runner)
	c.rt.AddAlways("targets", forbidden.run)
	if err := c.addExecutor(runner, forbidden.await); err != nil {
		return err
	}
	pages := &site{
		o: c.o.Serve, namespaces: c.o.namespaces, system: c.o.system, log: c.log, tracers: c.tracers, rt: c.rt,
		operations: objects.operations.Store, webhooks: objects.webhooks.Store, scheduler: scheduler, executor: runner,
		key: key, sharing: c.sharing,
	}
	return pages.register(c.listeners, ready)
}

// newExecutor creates the executor, its Events and its crash log.
func (c *controller) newExecutor(objects *caches, forbidden *targets, key []byte) (*executor.Executor, error) {
	events, err := executor.NewEvents(c.rt.Calls())
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, events.Close)
	if err := c.rt.Registry().Register(events); err != nil {
		return nil, err
	}
	options := executor.Options{
		Calls: c.rt.Calls(), Operations: objects.operations.Store, Webhooks: objects.webhooks.Store,
		Secrets: objects.secrets.Store, ServiceAccounts: objects.accountStore(),
		AnyCredentials: c.o.Targets.anyCredentials(), AllowTargets: c.o.Targets.Allow,
		Targets: forbidden.options(c.o.Targets.Deny), PublicURL: c.o.Serve.publicURL, CallbackKey: key,
		Workers: c.o.workers, MaxCalls: c.o.maxCalls, Budget: c.o.budget, Fence: c.election.fence, Drain: c.o.Drain,
		Logger: c.log, Recorder: events, Registerer: c.rt.Registry(), TracerProvider: c.tracers,
	}
	if c.o.egressProxy != "" {
		if options.EgressProxy, err = url.Parse(c.o.egressProxy); err != nil {
			return nil, err
		}
	}
	if c.o.crashDir != "" {
		crashes, err := openCrashLog(c.o.crashDir, debug.SetCrashOutput)
		if err != nil {
			return nil, err
		}
		c.closers = append(c.closers, func() { closeCrashLog(crashes, c.log) })
		options.Witness = crashes
	}
	if c.sharing != nil {
		options.Shards = c.sharing.group
	}
	return executor.New(options)
}

// addExecutor makes the runtime run the executor, after await has returned. Await must return before the first call.
func (c *controller) addExecutor(runner *executor.Executor, await func(ctx, term context.Context)) error {
	if c.sharing == nil {
		c.rt.Add("executor", func(ctx context.Context) error {
			term := c.election.term(ctx)
			if await(ctx, term); ctx.Err() != nil || term.Err() != nil {
				return nil
			}
			return runTerm(ctx, term, runner, c.o.Drain, c.log)
		})
		return nil
	}
	c.rt.Add("executor", func(ctx context.Context) error {
		if await(ctx, ctx); ctx.Err() != nil {
			return nil
		}
		return c.sharing.run(ctx, runner, c.log)
	})
	return c.rt.Registry().Register(c.sharing.group.Collector())
}

// close closes the parts, the last one first.
func (c *controller) close() {
	for _, shut := range slices.Backward(c.closers) {
		shut()
	}
}

// warnOfSystem logs a warning if the system namespace is one of several served namespaces.
func (c *controller) warnOfSystem(ctx context.Context) {
	if served := distinct(c.o.namespaces); len(served) > 1 && slices.Contains(served, c.o.system) {
		c.log.WarnContext(ctx,
			"callback key and Lease are in one of the served namespaces: a user who may read Secrets there can forge "+
				"callbacks of the others; set --system-namespace to a separate namespace", "namespace", c.o.system)
	}
}
