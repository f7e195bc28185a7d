package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/writeoption"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
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
	e := &Executor{
		gained: gainedSlots{added: make(chan struct{}, 1)}, lines: &lines{}, changes: newWebhookChanges(),
		store: o.Operations, hookStore: o.Webhooks, callbacks: NewCallbacks(o.PublicURL, o.CallbackKey),
		recorder: o.Recorder, now: o.Now, tried: &tried{}, attempts: &attempts{},
		stopped: make(chan struct{}),
	}
	e.log, e.slot = inherit.Logger(o.Logger)
	if e.now == nil {
		e.now = time.Now
	}
	e.attempts.since = e.now()
	e.spans = spans{enabled: o.TracerProvider != nil, now: e.now}
	if e.recorder == nil {
		e.recorder = noRecorder{}
	}
	var err error
	if e.anyone, err = newClient(o.Calls, o.Policy, e.log, o.Operations, o.Webhooks); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	if e.own, err = newOwnership(o.Shards, o.Fence, o.Policy); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	e.own.bind(e.anyone)
	e.fresh = newFreshness(e.own.layout())
	var rate *fair.Budget
	e.budget, rate = newBudgets(o.Budget, e.log)
	e.writes = &writes{
		own: e.own, store: o.Operations, fresh: e.fresh.in, budget: e.budget, trust: &e.trust, spans: e.spans,
		draining: e.draining, conflicted: e.troubles.conflicted, written: e.lines.wake, log: e.log, now: e.now,
	}
	e.stuck = newTally(func() (at, behind []store.Key) {
		running, ready := e.engine.Blocked()
		return e.runs.unfinished(running), e.runs.unfinished(ready)
	})
	e.runs = newRuns(func(key store.Key) { e.stuck.set(key, "") })
	e.locks = &locks{
		store: o.Operations, partial: e.own.isPartial(), accepted: e.runs, fresh: e.fresh.in, lines: e.lines,
		history: history{calls: o.Calls, policy: e.own.policyOf, newest: e.writes.get},
	}
	webhooks := store.Of[v1alpha1.Webhook](o.Webhooks)
	e.releases = &releases{
		any: o.AnyCredentials, webhooks: webhooks, secrets: o.Secrets, accounts: o.ServiceAccounts,
	}
	e.quarantine = newQuarantine(o.Witness, webhooks)
	e.secrets = &secrets{
		secrets: o.Secrets, releases: e.releases, calls: o.Calls, policy: e.own.policyOf, now: e.now,
		tokens: make(map[string]map[tokenKey]token), spend: e.budget.Charge,
	}
	e.hooks = compiled.New(o.Webhooks, e.compile)
	e.status = newHookStatus(hookStatusOptions{
		own: e.own, releases: e.releases, quarantine: e.quarantine, budget: e.budget, compile: e.hooks.Await,
		breaker: func(namespace, name string) webhook.BreakerStatus { return e.webhooks.Breaker(namespace, name) },
		patch:   e.patchWebhook, onQuarantined: e.reportQuarantine, log: e.log, now: e.now,
	})
	if e.webhooks, err = webhook.New(webhook.Options{
		Resolver: e.secrets, AllowTargets: o.AllowTargets, DenyTargets: o.Targets.Deny, InsideTargets: o.Targets.Inside,
		NeverTargets: o.Targets.Never, NeverHosts: o.Targets.NeverHosts,
		Proxy: o.EgressProxy, OnBreaker: e.status.breakerChanged, Logger: e.log, Fence: e.own.check(), Witness: o.Witness,
		TracerProvider: o.TracerProvider,
	}); err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = defaultCalls
	}
	e.calls = &calls{
		own: e.own, hooks: e.hooks, endpoints: e.webhooks, rate: rate, slots: fair.NewSlots(o.MaxCalls),
		holders: &e.holders, tried: e.tried, attempts: e.attempts, deliver: e.runs.deliver, now: e.now,
	}
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
	e.metrics = newMetrics(e.census, func() int { return e.calls.slots.Usage().Waiting })
	e.explainer = &explainer{
		own: e.own, runs: e.runs, lines: e.lines, drain: &e.drain, troubles: &e.troubles, holders: &e.holders,
		releases: e.releases, quarantine: e.quarantine, operations: o.Operations, hooks: o.Webhooks, compiled: e.hooks,
		endpoints: e.webhooks, engine: e.engine, live: e.anyone, now: e.now,
	}
	e.reports = &reporter{
		metrics: e.metrics, recorder: e.recorder, spans: e.spans, attempts: e.attempts, log: e.log,
	}
	shares := shares{"places": e.calls.slots.Usage, "calls": rate.Usage, "writes": e.budget.Usage}
	e.metrics.states = append(e.metrics.states, shares, breakers{e.webhooks}, e.stuck)
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
	e.own.base = ctx
	e.slot.From(ctx)
	defer e.webhooks.Close()
	defer e.calls.underWay.Wait()
	defer func() {
		e.drain.begin(true)
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
	if !e.own.isPartial() {
		e.gain(e.own.layout().All())
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { follow(ctx, hooks) })
	followers.Go(func() { e.hooks.Run(ctx) })
	followers.Go(func() { e.status.run(ctx) })
	followers.Go(func() { e.changes.run(ctx, e.runs.notifyNaming) })
	followers.Go(func() { e.releases.follow(ctx, e.releaseChanged) })
	followers.Go(func() { e.takeOver(ctx) })
	followers.Go(func() {
		e.fresh.run(ctx, e.store, statuses.C, func() { e.lines.wake(stale) }, e.log)
	})
	e.followOperations(ctx)
	return context.Cause(ctx)
}

// Drain starts no new calls from now on. It returns nil when the calls under way have returned and their results are
// recorded, so that no successor repeats them. If ctx ends first, the error wraps its cause. Drain also fails if Run
// ends first. Operations that wait continue to wait; the context of Run has to end as usual. Drain may be called more
// than once, and before Run.
func (e *Executor) Drain(ctx context.Context) error { return e.drain.wait(ctx, e.stopped) }

// census returns the number of operations in progress, of those near their timeout, and of those that wait for a lock.
func (e *Executor) census() census {
	c := e.runs.census(e.now())
	c.locked = e.lines.count()
	return c
}

// compile compiles a Webhook unless it is quarantined.
func (e *Executor) compile(ctx context.Context, d webhook.Definition) (*webhook.Compiled, error) {
	if e.quarantine.hasNamed(d.Namespace, d.Name) {
		return nil, fmt.Errorf("%w: %s", errQuarantined, d.Name)
	}
	return e.webhooks.Compile(ctx, d)
}

// patchWebhook patches the status of a Webhook, and calls answered with the answer of the API server.
func (e *Executor) patchWebhook(ctx context.Context, hook store.Key, body []byte, answered func(raw []byte)) error {
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: hook.Namespace, Name: hook.Name}}
	return e.own.clientOf(hook.Namespace, store.WriteContext{}).Status().Patch(ctx, w,
		client.RawPatch(types.MergePatchType, body), client.Always(), writeoption.Answered(answered))
}

// reportQuarantine reports that the status of a Webhook that the witness has condemned is written.
func (e *Executor) reportQuarantine(ctx context.Context, w *v1alpha1.Webhook, guilty Condemned) {
	e.metrics.quarantined.Inc()
	e.log.ErrorContext(ctx, "webhook is quarantined", "webhook", w.Namespace+"/"+w.Name, "phase", guilty.Phase,
		"crashed", guilty.At)
}
