package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// Options configure an Executor. Calls, Operations, Webhooks and Secrets are required.
type Options struct {
	// Calls makes the requests to the API server.
	Calls *call.Client
	// Policy of those requests. Default: that of package call.
	Policy call.Policy
	// Operations, Webhooks and Secrets are the stores of the namespaces that are served.
	Operations, Webhooks, Secrets *store.Store
	// ServiceAccounts is the store of those of the namespaces that are served. Nil: tokens are made of none, unless
	// AnyCredentials.
	ServiceAccounts *store.Store
	// AnyCredentials lets Webhooks use all Secrets and service accounts of their namespace. Default: Secrets with the
	// label v1alpha1.LabelWebhookCredentials, and service accounts for the audiences of
	// v1alpha1.AnnotationWebhookAudiences; operations wait for others.
	AnyCredentials bool
	// AllowTargets are CIDRs and hosts that webhooks may be sent to although they are loopback, private or the like.
	AllowTargets []string
	// Targets are those that webhooks may not be sent to besides, and what is known of the cluster's own addresses.
	Targets Targets
	// EgressProxy is a proxy for webhooks. Default: none, whatever the environment says.
	EgressProxy *url.URL
	// PublicURL is what callback URLs start with. Default: there are none, and AsyncCallback webhooks end as Invalid.
	PublicURL string
	// CallbackKey makes callback tokens. Required with PublicURL.
	CallbackKey []byte
	// FormerKey makes tokens that are still taken. Default: none.
	FormerKey *FormerKey
	// Workers is how many operations of one namespace may write to the API server at once; a quarter more are there for
	// other namespaces. Default: 16: what waits should wait in the fair queue here, not in the API server.
	Workers int
	// MaxCalls bounds the calls under way, of all receivers together; a namespace gets at most half of them while others
	// may come, and one of several tenants of it three quarters of that half. Default: 512.
	MaxCalls int
	// Fence says why nothing may be done any more, because somebody else may be doing it: that of the lease under which
	// this Executor runs. It is asked just before each request that it sends, to receivers, token endpoints and, unless it
	// is a callback's, to the API server. It must be quick and safe for concurrent use. Default: there is none.
	Fence func() error
	// Witness knows which Webhooks have killed the process, so that they can be quarantined. Default: none are.
	Witness Witness
	// Budget is what the operations of each namespace may use over time.
	Budget Budget
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger gets one line per decision. Default: that of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
	// Recorder gets Kubernetes Events. Default: none.
	Recorder Recorder
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
}

// Targets say where webhooks may not be sent to. The functions are asked at each connection and must not block; nil
// ones know nothing. What is said further up beats what is said below.
type Targets struct {
	// Never are the addresses and ports of the API server, NeverHosts its names with ports ("api.example.com:6443"):
	// nothing allows them.
	Never      func() []netip.AddrPort
	NeverHosts []string
	// Deny are CIDRs and hosts that AllowTargets does not allow.
	Deny []string
	// Inside are the ranges of the services and pods of the cluster, which are denied unless AllowTargets names them, also
	// where they look public.
	Inside func() []netip.Prefix
}

// Recorder records Kubernetes Events, as [Events] does.
type Recorder interface {
	// Operation records that something happened to an operation. It never blocks.
	Operation(op *v1alpha1.Operation, warning bool, reason, message string)
}

// Executor runs Operations to their end. Only one may run for a namespace at a time: see leader election in the program
// that embeds it, and Options.Fence. A second one would do no harm to outcomes, but make calls twice, with the same
// keys.
type Executor struct {
	calls     *call.Client
	policy    call.Policy    // whose Fence is that of the Executor
	unfenced  call.Policy    // of what any replica may do
	anyone    *client.Client // does what any replica may do
	client    *client.Client // does what the Fence allows
	store     *store.Store
	hookStore *store.Store
	hooks     *hooks
	webhooks  *webhook.Client
	callbacks *Callbacks
	flow      *flow.Flow[run]
	engine    *flow.Engine
	metrics   *metrics
	witness   Witness
	condemned map[string]Condemned // by revision
	recorder  Recorder
	log       *slog.Logger
	slot      inherit.Slot // of log
	now       func() time.Time

	slots    *slots
	writes   *budget // of status writes
	outside  *budget // of calls
	stirs    *stirs
	status   *hookStatus
	secrets  *secrets
	releases *releases
	flights  sync.WaitGroup // calls under way
	stopped  chan struct{}  // closed when Run has returned
	fresh    atomic.Bool    // the store is as new as the beginning of Run
	trust    trust

	mu    sync.Mutex
	drain drain
	live  map[string]map[string]*run // by namespace and name
	lines map[store.Key]*line        // runs that wait for the end of another operation, by its key
}

const (
	// defaultWorkers bounds the requests to the API server in flight, defaultCalls those to receivers.
	defaultWorkers = 16
	defaultCalls   = 512
)

// New returns an Executor. It sends nothing before Run.
func New(o Options) (*Executor, error) {
	if o.Calls == nil || o.Operations == nil || o.Webhooks == nil || o.Secrets == nil {
		return nil, errors.New("cannot make an executor: calls, operations, webhooks and secrets are required")
	}
	e := &Executor{
		calls: o.Calls, policy: fenced(o.Policy, fence(o.Fence)), unfenced: o.Policy, store: o.Operations, hookStore: o.Webhooks,
		callbacks: NewCallbacks(o.PublicURL, o.CallbackKey),
		recorder:  o.Recorder, now: o.Now,
		live: make(map[string]map[string]*run), stirs: newStirs(), lines: make(map[store.Key]*line),
		stopped: make(chan struct{}), drain: drain{busy: make(map[*run]struct{})},
	}
	e.callbacks.former = o.FormerKey
	if e.witness = o.Witness; e.witness != nil {
		e.condemned = make(map[string]Condemned)
		for _, c := range e.witness.Condemned() {
			e.condemned[c.Revision] = c
		}
	}
	e.log, e.slot = inherit.Logger(o.Logger)
	if e.now == nil {
		e.now = time.Now
	}
	if e.recorder == nil {
		e.recorder = noRecorder{}
	}
	e.releases = &releases{
		any: o.AnyCredentials, webhooks: store.Of[v1alpha1.Webhook](o.Webhooks), secrets: o.Secrets, accounts: o.ServiceAccounts,
	}
	e.secrets = &secrets{
		secrets: o.Secrets, releases: e.releases, calls: o.Calls, policy: e.policy, now: e.now, tokens: make(map[string]map[tokenKey]token),
	}
	e.status = newHookStatus(e)
	anyone, err := newClient(o.Calls, o.Policy, e.log, o.Operations, o.Webhooks)
	if err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.anyone, e.client = anyone, anyone.Bound(client.Binding{Fence: fence(o.Fence)})
	if e.webhooks, err = webhook.New(webhook.Options{
		Resolver: e.secrets, AllowTargets: o.AllowTargets, DenyTargets: o.Targets.Deny, InsideTargets: o.Targets.Inside,
		NeverTargets: o.Targets.Never, NeverHosts: o.Targets.NeverHosts,
		Proxy: o.EgressProxy, OnBreaker: e.status.breakerChanged, Logger: e.log, Fence: o.Fence, Witness: o.Witness,
	}); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.hooks = newHooks(o.Webhooks, e.compile)
	e.writes, e.outside = e.newBudgets(o.Budget)
	e.secrets.spend = e.writes.charge
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = defaultCalls
	}
	e.slots = newSlots(o.MaxCalls)
	if err := indexLocked(o.Operations); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.flow = e.newFlow()
	if err := e.flow.Err(); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.engine = flow.NewEngine(flow.EngineOptions{Workers: o.Workers + max(1, o.Workers/4), PerGroup: o.Workers, Logger: e.log})
	e.metrics = newMetrics(e.census, e.slots.depth)
	e.metrics.states = append(e.metrics.states, shares{e})
	if o.Registerer != nil {
		if err := errors.Join(o.Registerer.Register(e.metrics), o.Registerer.Register(e.engine.Collector())); err != nil {
			return nil, fmt.Errorf("cannot make an executor: cannot register metrics: %w", err)
		}
	}
	return e, nil
}

// Run runs operations until the context ends; then the calls in flight are cancelled, to be repeated with the same keys
// by whoever takes over. To let them come back instead, call Drain before the context ends. It returns the context's
// cause, when nothing of it is running any more. It can be called once.
func (e *Executor) Run(ctx context.Context) error {
	defer close(e.stopped)
	e.slot.From(ctx)
	defer e.webhooks.Close()
	defer e.flights.Wait()
	defer func() {
		e.beginNoCalls(true)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := e.engine.Close(bounded); err != nil {
			e.log.ErrorContext(ctx, "flows did not stop", "error", err)
		}
	}()
	select { // so that no Webhook seems to be missing; Secrets are waited for when they are needed
	case <-e.hookStore.Synced():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	hooks := e.hookStore.Subscribe(store.SubscribeOptions{Name: "executor"}) // before any operation looks at one
	defer hooks.Close()
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { e.followWebhooks(ctx, hooks) })
	followers.Go(func() { e.hooks.run(ctx) })
	followers.Go(func() { e.status.run(ctx) })
	followers.Go(func() { e.stir(ctx) })
	if !e.releases.any {
		followers.Go(func() { e.followSecrets(ctx) })
		if e.releases.accounts != nil {
			followers.Go(func() { e.followAccounts(ctx) })
		}
	}
	followers.Go(func() { e.catchUp(ctx) })
	e.followOperations(ctx)
	return context.Cause(ctx)
}

// Flows returns the engine that runs the operations, to show its fibers.
func (e *Executor) Flows() *flow.Engine { return e.engine }

// catchUp notes when the store knows all that a predecessor may have written. Nobody waits for it: until then, a run
// that is about to repeat what was begun before it reads its operation itself (see confirmed).
func (e *Executor) catchUp(ctx context.Context) {
	if err := e.store.Barrier(ctx); err != nil {
		if ctx.Err() == nil {
			e.log.DebugContext(ctx, "cannot tell whether the operations known are the newest ones: those begun before are read one by one", "error", err)
		}
		return
	}
	e.fresh.Store(true)
}

// errEnded says that Run has returned.
var errEnded = errors.New("the executor has ended")

type noRecorder struct{}

func (noRecorder) Operation(*v1alpha1.Operation, bool, string, string) {}
