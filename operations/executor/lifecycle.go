package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

const (
	// defaultWorkers bounds the requests to the API server under way, and defaultCalls those to receivers.
	defaultWorkers = 16
	defaultCalls   = 512
)

// New returns an Executor. It sends no request before Run.
func New(o Options) (*Executor, error) {
	if o.Calls == nil || o.Operations == nil || o.Webhooks == nil || o.Secrets == nil {
		return nil, errors.New("cannot make an executor: calls, operations, webhooks and secrets are required")
	}
	layout := shard.Layout{Slots: 1}
	if o.Shards != nil {
		if layout = o.Shards.Layout(); layout.By != shard.Namespace {
			return nil, fmt.Errorf("cannot make an executor: operations are shared by namespace, so that those that exclude "+
				"each other are in one place: the group shares by %s", layout.By)
		}
	}
	e := &Executor{
		shards: o.Shards, some: make(chan struct{}, 1),
		calls: o.Calls, policy: fenced(o.Policy, fence(o.Fence)), store: o.Operations, hookStore: o.Webhooks,
		callbacks: NewCallbacks(o.PublicURL, o.CallbackKey),
		recorder:  o.Recorder, now: o.Now,
		live: make(map[string]map[string]*run), changes: newWebhookChanges(), lines: make(map[store.Key]*line),
		troubles: make(map[*run]*trouble), asking: make(map[*run]chan struct{}), fresh: newFreshness(layout),
		traced: o.TracerProvider != nil, tried: &tried{}, attempts: &attempts{}, stopped: make(chan struct{}),
		drain: drain{busy: make(map[*run]struct{})},
	}
	e.tenures = handover.New(layout, errMoved, func(int) context.Context { return e.running })
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
	e.attempts.since = e.now()
	if e.recorder == nil {
		e.recorder = noRecorder{}
	}
	e.releases = &releases{
		any: o.AnyCredentials, webhooks: store.Of[v1alpha1.Webhook](o.Webhooks), secrets: o.Secrets,
		accounts: o.ServiceAccounts,
	}
	e.secrets = &secrets{
		secrets: o.Secrets, releases: e.releases, calls: o.Calls, policy: e.policyOf, now: e.now,
		tokens: make(map[string]map[tokenKey]token),
	}
	e.status = newHookStatus(e)
	anyone, err := newClient(o.Calls, o.Policy, e.log, o.Operations, o.Webhooks)
	if err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.anyone, e.client = anyone, anyone.Bound(binding.Binding{Fence: fence(o.Fence), Reported: true})
	if e.webhooks, err = webhook.New(webhook.Options{
		Resolver: e.secrets, AllowTargets: o.AllowTargets, DenyTargets: o.Targets.Deny, InsideTargets: o.Targets.Inside,
		NeverTargets: o.Targets.Never, NeverHosts: o.Targets.NeverHosts,
		Proxy: o.EgressProxy, OnBreaker: e.status.breakerChanged, Logger: e.log, Fence: e.allowed(o.Fence), Witness: o.Witness,
		TracerProvider: o.TracerProvider,
	}); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.hooks = compiled.New(o.Webhooks, e.compile)
	e.writes, e.outside = e.newBudgets(o.Budget)
	e.secrets.spend = e.writes.Charge
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = defaultCalls
	}
	e.slots = fair.NewSlots(o.MaxCalls)
	if err := indexLocked(o.Operations); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.flow = e.newFlow()
	if err := e.flow.Err(); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.engine = flow.NewEngine(flow.EngineOptions{
		Workers: o.Workers + max(1, o.Workers/4), PerGroup: o.Workers, Logger: e.log,
		Tracer: tracing.Tracer(o.TracerProvider, "operation/executor"),
	})
	e.stuck = newTally(e.blocked)
	e.metrics = newMetrics(e.census, func() int { return e.slots.Usage().Waiting })
	e.metrics.states = append(e.metrics.states, shares{e}, breakers{e.webhooks}, e.stuck)
	if o.Registerer != nil {
		if err := errors.Join(o.Registerer.Register(e.metrics), o.Registerer.Register(e.engine.Collector())); err != nil {
			return nil, fmt.Errorf("cannot make an executor: cannot register metrics: %w", err)
		}
	}
	return e, nil
}

// Run runs operations until ctx ends. Then it cancels the calls under way, and the successor repeats them with the
// same keys. To let them return instead, call Drain before ctx ends. Run returns the cause of ctx, after all its
// goroutines have ended. It can be called once.
func (e *Executor) Run(ctx context.Context) error {
	defer close(e.stopped)
	e.running = ctx
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
	select { // else Webhooks would seem to be missing; Secrets are awaited on use
	case <-e.hookStore.Synced():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	hooks := e.drainWebhooks(ctx) // subscribed before any operation reads a Webhook
	defer hooks.Close()
	statuses := e.store.WatchStatus()
	defer statuses.Close()
	if e.shards == nil {
		e.gain(e.tenures.Layout().All())
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { follow(ctx, hooks) })
	followers.Go(func() { e.hooks.Run(ctx) })
	followers.Go(func() { e.status.run(ctx) })
	followers.Go(func() { e.changes.run(ctx, e.wakeNaming) })
	if !e.releases.any {
		followers.Go(func() { e.followSecrets(ctx) })
		if e.releases.accounts != nil {
			followers.Go(func() { e.followAccounts(ctx) })
		}
	}
	followers.Go(func() { e.takeOver(ctx) })
	followers.Go(func() { e.catchUp(ctx, statuses.C) })
	e.followOperations(ctx)
	return context.Cause(ctx)
}

// Flows returns the engine that runs the operations, for showing its fibers.
func (e *Executor) Flows() *flow.Engine { return e.engine }

// errEnded says that Run has returned.
var errEnded = errors.New("the executor has ended")
