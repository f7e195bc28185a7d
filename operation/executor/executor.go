package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
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
	// AllowTargets are CIDRs and hosts that webhooks may be sent to although they are loopback, private or the like.
	AllowTargets []string
	// EgressProxy is a proxy for webhooks. Default: none, whatever the environment says.
	EgressProxy *url.URL
	// PublicURL is what callback URLs start with. Default: there are none, and AsyncCallback webhooks end as Invalid.
	PublicURL string
	// CallbackKey makes callback tokens. Required with PublicURL.
	CallbackKey []byte
	// Workers is how many operations may write to the API server at once. Default: 16: what waits should wait in the fair queue here, not in the API server.
	Workers int
	// MaxCalls bounds the calls under way, of all receivers together; a tenant gets at most half of them while others may come. Default: 512.
	MaxCalls int
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger gets one line per decision. Default: that of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
	// Recorder gets Kubernetes Events. Default: none.
	Recorder Recorder
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
}

// Recorder records Events, as k8s.io/client-go/tools/record does.
type Recorder interface {
	// Operation records that something happened to an operation. It never blocks.
	Operation(op *v1alpha1.Operation, warning bool, reason, message string)
}

// Executor runs Operations to their end. Only one may run for a namespace at a time: see leader election in the
// program that embeds it. A second one would do no harm to outcomes, but make calls twice, with the same keys.
type Executor struct {
	calls     *call.Client
	policy    call.Policy
	store     *store.Store
	hookStore *store.Store
	hooks     *hooks
	webhooks  *webhook.Client
	callbacks *Callbacks
	flow      *flow.Flow[run]
	engine    *flow.Engine
	metrics   *metrics
	recorder  Recorder
	log       *slog.Logger
	slot      inherit.Slot // of log
	now       func() time.Time

	slots   *slots
	status  *hookStatus
	secrets *secrets
	flights sync.WaitGroup // calls under way

	mu    sync.Mutex
	live  map[store.Key]*run
	floor map[store.Key]string // versions that runs which have ended wrote and the store has not seen yet
	lines map[store.Key]*line  // runs that wait for the end of another operation, by its key
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
		calls: o.Calls, policy: o.Policy, store: o.Operations, hookStore: o.Webhooks,
		hooks:     newHooks(store.Of[v1alpha1.Webhook](o.Webhooks)),
		callbacks: NewCallbacks(o.PublicURL, o.CallbackKey),
		recorder:  o.Recorder, now: o.Now,
		live: make(map[store.Key]*run), floor: make(map[store.Key]string), lines: make(map[store.Key]*line),
	}
	e.log, e.slot = inherit.Logger(o.Logger)
	if e.now == nil {
		e.now = time.Now
	}
	if e.recorder == nil {
		e.recorder = noRecorder{}
	}
	e.secrets = &secrets{secrets: o.Secrets, calls: o.Calls, policy: o.Policy, now: e.now, tokens: make(map[tokenKey]token)}
	e.status = newHookStatus(e)
	var err error
	if e.webhooks, err = webhook.New(webhook.Options{
		Resolver: e.secrets, AllowTargets: o.AllowTargets, Proxy: o.EgressProxy, OnBreaker: e.status.breakerChanged, Logger: e.log,
	}); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
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
	e.engine = flow.NewEngine(flow.EngineOptions{Workers: o.Workers, Logger: e.log})
	e.metrics = newMetrics(e.census, e.slots.depth)
	if o.Registerer != nil {
		if err := errors.Join(o.Registerer.Register(e.metrics), o.Registerer.Register(e.engine.Collector())); err != nil {
			return nil, fmt.Errorf("cannot make an executor: cannot register metrics: %w", err)
		}
	}
	return e, nil
}

// Run runs operations until the context ends; then the calls in flight are cancelled, to be repeated with the same keys
// by whoever takes over. It returns the context's cause, when nothing of it is running any more. It can be called once.
func (e *Executor) Run(ctx context.Context) error {
	e.slot.From(ctx)
	defer e.webhooks.Close()
	defer e.flights.Wait()
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := e.engine.Close(bounded); err != nil {
			e.log.ErrorContext(ctx, "flows did not stop", "error", err)
		}
	}()
	if err := e.ready(ctx); err != nil {
		return err
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { e.followWebhooks(ctx) })
	followers.Go(func() { e.status.run(ctx) })
	e.followOperations(ctx)
	return context.Cause(ctx)
}

// Flows returns the engine that runs the operations, to show its fibers.
func (e *Executor) Flows() *flow.Engine { return e.engine }

// ready waits until Webhooks are known, so that none seems to be missing, and until the Operations are as new as they are now, so that
// nothing is repeated that a predecessor has done. Secrets are waited for when they are needed.
func (e *Executor) ready(ctx context.Context) error {
	select {
	case <-e.hookStore.Synced():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := e.store.Barrier(ctx); err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "cannot tell whether the operations known are the newest ones", "error", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

type noRecorder struct{}

func (noRecorder) Operation(*v1alpha1.Operation, bool, string, string) {}
