package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// Options configures the operations controller and its HTTP API.
type Options struct {
	ServeOptions
	sharingOptions
	namespaces []string
	// systemNamespace contains the callback key and the Lease. Empty: the default namespace.
	systemNamespace string
	AllowTargets    []string
	DenyTargets     []string
	Credentials     string
	egressProxy     string
	leaderElect     bool
	workers         int
	maxCalls        int
	budget          executor.Budget
	Drain           time.Duration
	crashDir        string
}

const (
	// defaultDrain is how long a stopping controller waits for running calls.
	defaultDrain = 8 * time.Second
	// StopMargin bounds the rest of a shutdown: writes, requests to the HTTP API, Events. The termination grace period
	// of the pod in deploy/ exceeds the sum of both.
	StopMargin = 15 * time.Second
)

func (o *Options) flags(f *pflag.FlagSet) {
	o.ServeOptions.flags(f)
	o.sharingFlags(f)
	f.StringArrayVar(&o.AllowTargets, "allow-target", nil,
		"loopback or private `CIDR or host` that webhooks may call; may be repeated")
	o.TargetFlags(f)
	f.StringVar(&o.egressProxy, "egress-proxy", "", "`URL` of a proxy for all webhooks")
	f.IntVar(&o.workers, "workers", 0,
		"`number` of operations of one namespace that may write to the API server at the same time (default 16)")
	f.IntVar(&o.maxCalls, "max-calls", 0,
		"`number` of webhook calls in progress, half of them for one namespace (default 512)")
	f.IntVar(&o.budget.Writes, "namespace-writes", 0,
		"`writes` per second of one namespace to the API server; a write for a retry counts as five (default 500; -1: no limit)")
	f.IntVar(&o.budget.WriteBytes, "namespace-write-bytes", 0,
		"`bytes` per second of the objects that one namespace writes (default 1048576; -1: no limit)")
	f.IntVar(&o.budget.TotalWrites, "writes", 0,
		"`writes` per second of all namespaces together that exhaust their limit (default four times --namespace-writes; -1: no limit)")
	f.IntVar(&o.budget.TotalWriteBytes, "write-bytes", 0,
		"`bytes` per second of the objects that those write (default twice --namespace-write-bytes; -1: no limit)")
	f.IntVar(&o.budget.Calls, "namespace-calls", 0,
		"webhook `calls` per second of one namespace (default 500; -1: no limit)")
	f.StringVar(&o.crashDir, "crash-dir", "",
		"persistent `directory` that records which Webhooks crash the process, to quarantine them (default: no quarantine)")
	f.DurationVar(&o.Drain, "drain", defaultDrain,
		"`time` that calls in progress have to finish when the controller stops")
}

func NewCommand(s cli.Streams) *cobra.Command {
	var c cli.Connection
	var o Options
	var verbose bool
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the operations controller and its HTTP API",
		Long: `Controller runs Operations to their end: it calls their Webhooks, records every attempt in advance, and serves
the HTTP API, the console at /console/, /healthz, /readyz, /metrics and /debug/. It needs the custom resources:

	fairlead crds | kubectl apply --server-side -f -

Callers of the HTTP API authenticate with a bearer token of the cluster (--audience) and need permission for the same verb on
operations.fairlead.io. On addresses other than loopback, the API requires TLS (--tls-cert-file, --tls-key-file) or --insecure-http.

Webhooks may not call loopback, private or link-local addresses, nor the address ranges of the cluster for
services and pods, unless --allow-target names them. They may never call the API server or a --deny-target. They may use Secrets with the label
fairlead.io/webhook-credentials=true, and service accounts for the audiences in their annotation fairlead.io/webhook-audiences.

With several replicas, one works (--leader-elect), or all share the operations by namespace (--shards). After a graceful stop the
others take over at once, after a crash within nine seconds. A rolling update switches between the two
modes. fairlead shards shows the distribution. Every replica serves the HTTP API for all namespaces.

Traces are exported as configured by OpenTelemetry's environment variables, such as OTEL_EXPORTER_OTLP_ENDPOINT (default: none).

On SIGTERM or Ctrl-C it starts no new calls, waits up to --drain for those in progress, records their results, and then releases the
Lease or its slots. Longer calls are aborted; the next replica repeats them with the same key. A second signal ends it at once.`,
		Example: `  fairlead controller --insecure-no-auth                    # on your machine, HTTP API on loopback without authentication
  fairlead controller --leader-elect --listen :8443 --metrics-listen :8082 --audience fairlead \
    --tls-cert-file tls.crt --tls-key-file tls.key          # one of several replicas in a cluster
  fairlead controller --shards --listen :8443 --metrics-listen :8082 --audience fairlead \
    --tls-cert-file tls.crt --tls-key-file tls.key          # one of several replicas that share the operations
  fairlead controller -n team-a --allow-target 10.0.0.0/8   # one namespace, webhooks into a private network`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, namespace, err := c.Config()
			if err != nil {
				return err
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: level}))
			if err := o.placeSystem(namespace); err != nil {
				return err
			}
			if len(o.namespaces) > 0 {
				namespace = o.namespaces[0]
			}
			return Run(cmd.Context(), config, namespace, o, log, nil)
		},
	}
	f := cmd.Flags()
	c.Flags(f)
	f.StringArrayVarP(&o.namespaces, "namespace", "n", nil, "`namespace` to serve; may be repeated (default: all)")
	f.StringVar(&o.systemNamespace, "system-namespace", "",
		"`namespace` of the callback key and the Lease (default: the namespace served, "+
			"or with several or all, that of the pod or the context)")
	f.BoolVar(&o.leaderElect, "leader-elect", false,
		"work only while holding the Lease fairlead-controller; the HTTP API is always served")
	f.BoolVar(&verbose, "verbose", false, "log more")
	o.flags(f)
	return cmd
}

// hotBytes bounds the decoded objects of each store. It is small because most operations wait.
const hotBytes = 1 << 20

// Run runs until the context ends. namespace is the default namespace. It also contains the callback key and
// the Lease unless the options name another one. If ready is not nil, it is called with the address of the HTTP API
// once that is served.
func Run(
	ctx context.Context, config *rest.Config, namespace string, o Options, log *slog.Logger, ready func(
		net.Addr,
	),
) error {
	spans, err := newTracing(ctx, log)
	if err != nil {
		return err
	}
	defer spans.stop()
	doors, err := o.open(log)
	if err != nil {
		return err
	}
	defer doors.close()
	types := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(types), scheme.AddToScheme(types)); err != nil {
		return err
	}
	o.systemNamespace = cmp.Or(o.systemNamespace, namespace)
	c := &controller{Options: o, config: config, namespace: namespace, log: log, spans: spans}
	opts := []fairlead.Option{
		fairlead.WithScheme(types), fairlead.WithLogger(log), fairlead.WithHotBytes(hotBytes),
		fairlead.WithStopTimeout(o.Drain + StopMargin), fairlead.WithTracerProvider(spans.tracers()),
	}
	if o.shards != "" {
		if c.sharing, err = newSharing(c, addressOf(o.scheme(), doors.api)); err != nil {
			return err
		}
	}
	if o.leaderElect {
		if c.election, err = newElection(c, addressOf(o.scheme(), doors.api)); err != nil {
			return err
		}
		opts = append(opts, fairlead.WithLeadership(c.election))
	}
	rt := fairlead.New(config, opts...)
	c.rt = rt
	if rt.Calls() == nil {
		return rt.Run(ctx) // reports the configuration problem
	}
	if err := checkCluster(ctx, rt.Calls(), config); err != nil {
		if ctx.Err() != nil {
			return nil // it was stopped
		}
		return err
	}
	if err := c.prepare(ctx, doors.api); err != nil {
		return err
	}
	defer c.close()
	rt.AddAlways("targets", c.targets.run)
	if c.sharing != nil {
		if err := rt.Registry().Register(c.sharing.group.Collector()); err != nil {
			return err
		}
		rt.Add("executor", c.executeShared)
	} else {
		rt.Add("executor", c.execute)
	}
	if err := c.serve(doors, ready); err != nil {
		return err
	}
	err = rt.Run(ctx)
	if o.leaderElect && errors.Is(err, fairlead.ErrNotLeading) {
		err = fmt.Errorf("%w: %w", errDeposed, err)
	}
	return err
}

// open checks the options and opens the listeners.
func (o *Options) open(log *slog.Logger) (*doors, error) {
	if o.egressProxy != "" {
		if u, err := url.Parse(o.egressProxy); err != nil || u.Host == "" {
			return nil, cli.Usagef("--egress-proxy %q is not a URL", o.egressProxy)
		}
	}
	if err := o.checkTargets(); err != nil {
		return nil, err
	}
	if err := o.sharingOptions.check(); err != nil {
		return nil, err
	}
	if o.leaderElect && o.shards != "" {
		return nil, cli.Usagef("--leader-elect and --shards exclude each other")
	}
	if o.Drain < 0 {
		return nil, cli.Usagef("--drain %v is negative", o.Drain)
	}
	return o.ServeOptions.open(log)
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

// controller holds the parts of Run.
type controller struct {
	Options
	rt        *fairlead.Runtime
	config    *rest.Config
	namespace string
	log       *slog.Logger
	spans     *tracing // nil: no tracing

	operations, webhooks, secrets *cache.Handle
	accounts                      *cache.Handle // nil with --credentials=any
	targets                       *targets
	events                        *executor.Events
	scheduler                     *operations.Scheduler
	key                           []byte
	executor                      *executor.Executor
	crashes                       *executor.CrashLog // nil: none
	election                      *election          // nil without --leader-elect
	address                       string             // where other replicas reach this one; empty: unknown
	sharing                       *sharing           // nil without --shards
}

// prepare creates the parts that need no running cache.
func (c *controller) prepare(ctx context.Context, listener net.Listener) error {
	in := cache.Namespaces(c.namespaces...)
	var err error
	for _, want := range []struct {
		handle **cache.Handle
		kind   string
		share  cache.Option
	}{{&c.operations, v1alpha1.KindOperation, c.sharing.source()}, {&c.webhooks, v1alpha1.KindWebhook, nil}} {
		if *want.handle, err = c.rt.Cache().Acquire(
			v1alpha1.GroupVersion.WithKind(want.kind), in, want.share,
		); err != nil {
			return err
		}
	}
	if err = c.acquireCredentials(in); err != nil {
		return err
	}
	if c.targets, err = newTargets(c.config, c.rt.Calls(), c.log); err != nil {
		return err
	}
	c.warnOfSystem(ctx)
	if c.events, err = executor.NewEvents(c.rt.Calls()); err != nil {
		return err
	}
	if err = c.rt.Registry().Register(c.events); err != nil {
		return err
	}
	if c.scheduler, err = operations.NewScheduler(operations.Options{
		Config: c.config, Calls: c.rt.Calls(), Namespace: c.namespace, Logger: c.log,
	}); err != nil {
		return err
	}
	if listener != nil && c.publicURL == "" {
		c.publicURL = c.scheme() + "://" + listener.Addr().String()
	}
	if listener != nil {
		if c.key, err = callbackKey(ctx, c.rt.Calls(), c.systemNamespace); err != nil {
			return err
		}
	}
	var proxy *url.URL
	if c.egressProxy != "" {
		if proxy, err = url.Parse(c.egressProxy); err != nil {
			return err
		}
	}
	witness, err := c.openCrashes()
	if err != nil {
		return err
	}
	options := executor.Options{
		Calls: c.rt.Calls(), Operations: c.operations.Store, Webhooks: c.webhooks.Store, Secrets: c.secrets.Store,
		ServiceAccounts: c.accountStore(), AnyCredentials: c.Credentials == credentialsAny,
		AllowTargets: c.AllowTargets, Targets: c.targets.options(c.DenyTargets), EgressProxy: proxy,
		PublicURL: c.publicURL, CallbackKey: c.key, Workers: c.workers, MaxCalls: c.maxCalls,
		Budget: c.budget, Fence: c.fence, Witness: witness,
		Logger: c.log, Recorder: c.events, Registerer: c.rt.Registry(),
		TracerProvider: c.spans.tracers(),
	}
	if c.sharing != nil {
		options.Shards = c.sharing.group
	}
	if c.executor, err = executor.New(options); err != nil {
		return err
	}
	c.rt.Explain(c.executor)
	return nil
}

func (c *controller) close() {
	c.closeCrashes()
	c.events.Close()
	c.scheduler.Close()
	for _, h := range []*cache.Handle{c.operations, c.webhooks, c.secrets, c.accounts} {
		if h != nil {
			h.Release()
		}
	}
}

// execute runs the executor until ctx ends, and then until the running calls have ended, at most for --drain. It always
// ends with the term. A deposed leader ends the program; its successor continues from the recorded state.
func (c *controller) execute(ctx context.Context) error {
	term := c.term(ctx)
	if c.beforeCalls(ctx, term); ctx.Err() != nil || term.Err() != nil {
		return nil
	}
	running, end := context.WithCancelCause(term)
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- c.executor.Run(running) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if term.Err() != nil {
		return <-ended
	}
	c.log.InfoContext(ctx, "stopping: waiting for calls in progress", "atMost", c.Drain)
	bounded, cancel := context.WithTimeout(running, c.Drain)
	defer cancel()
	if err := c.executor.Drain(bounded); err != nil {
		c.log.WarnContext(ctx, "aborting calls in progress; they will be repeated with the same keys", "error", err)
	}
	end(context.Cause(ctx))
	c.log.InfoContext(ctx, "all operations stopped in this process", "cause", <-ended)
	return nil
}
