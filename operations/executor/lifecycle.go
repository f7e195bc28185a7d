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
	e, err := newExecutor(withDefaults(o))
	if err != nil {
		return nil, fmt.Errorf("cannot make an executor: %w", err)
	}
	return e, nil
}

func withDefaults(o Options) Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = defaultCalls
	}
	return o
}

// newExecutor creates the parts and connects them.
func newExecutor(o Options) (*Executor, error) {
	e := &Executor{
		drain: &drain{}, lines: &lines{}, attempts: &attempts{since: o.Now()}, changes: newWebhookChanges(),
		callbacks: NewCallbacks(o.PublicURL, o.CallbackKey), store: o.Operations, hookStore: o.Webhooks,
		spans: spans{enabled: o.TracerProvider != nil, now: o.Now}, now: o.Now, stopped: make(chan struct{}),
	}
	e.log, e.slot = inherit.Logger(o.Logger)
	troubles, trust, paces := &troubles{}, &trust{}, &paces{}
	var err error
	if e.anyone, err = newClient(o.Calls, o.Policy, e.log, o.Operations, o.Webhooks); err != nil {
		return nil, err
	}
	if e.own, err = newOwnership(o.Shards, o.Fence, o.Policy); err != nil {
		return nil, err
	}
	e.own.bind(e.anyone)
	if err := indexLocked(o.Operations); err != nil {
		return nil, err
	}
	e.fresh = newFreshness(e.own.layout())
	e.engine = flow.NewEngine(flow.EngineOptions{
		Workers: o.Workers + max(1, o.Workers/4), PerGroup: o.Workers, Logger: e.log,
		Requests: -1, // the workers also bound how many Operations, up to 1.5 MiB each, are written at a time
		Tracer:   tracing.Tracer(o.TracerProvider, "operation/executor"),
	})
	e.stuck = newTally(func() (at, behind []store.Key) {
		running, ready := e.engine.Blocked()
		return e.runs.unfinished(running), e.runs.unfinished(ready)
	})
	e.runs = newRuns(func(key store.Key) { e.stuck.set(key, "") })
	draining := func(namespace string) bool { return !e.own.holds(namespace) || e.drain.hasBegun() }

	// Writes, and the order of operations.
	var rate *fair.Budget
	e.budget, rate = newBudgets(o.Budget, e.log)
	writes := &writes{
		own: e.own, store: o.Operations, fresh: e.fresh.in, budget: e.budget, trust: trust, spans: e.spans,
		draining: draining, conflicted: troubles.conflicted, written: e.lines.wake, log: e.log, now: o.Now,
	}
	e.locks = &locks{
		store: o.Operations, partial: e.own.isPartial(), accepted: e.runs, fresh: e.fresh.in, lines: e.lines,
		history: history{calls: o.Calls, policy: e.own.policyOf, newest: writes.get},
	}

	// Webhooks and calls.
	hookView := store.Of[v1alpha1.Webhook](o.Webhooks)
	e.releases = &releases{
		any: o.AnyCredentials, webhooks: hookView, secrets: o.Secrets, accounts: o.ServiceAccounts,
	}
	e.quarantine = newQuarantine(o.Witness, hookView)
	e.secrets = &secrets{
		secrets: o.Secrets, releases: e.releases, calls: o.Calls, policy: e.own.policyOf, now: o.Now,
		tokens: make(map[string]map[tokenKey]token), spend: e.budget.Charge,
	}
	e.hooks = compiled.New(o.Webhooks, e.compile)
	e.status = newHookStatus(hookStatusOptions{
		own: e.own, releases: e.releases, quarantine: e.quarantine, budget: e.budget, compile: e.hooks.Await,
		breaker: func(namespace, name string) webhook.BreakerStatus { return e.webhooks.Breaker(namespace, name) },
		patch:   e.patchWebhook, onQuarantined: e.reportQuarantine, log: e.log, now: o.Now,
	})
	if e.webhooks, err = webhook.New(webhook.Options{
		Resolver: e.secrets, AllowTargets: o.AllowTargets, DenyTargets: o.Targets.Deny, InsideTargets: o.Targets.Inside,
		NeverTargets: o.Targets.Never, NeverHosts: o.Targets.NeverHosts,
		Proxy: o.EgressProxy, OnBreaker: e.status.breakerChanged, Logger: e.log, Fence: e.own.check(), Witness: o.Witness,
		TracerProvider: o.TracerProvider, Recorded: recordedBreakers(hookView),
	}); err != nil {
		return nil, err
	}
	holders := &holders{}
	e.calls = &calls{
		own: e.own, hooks: e.hooks, endpoints: e.webhooks, rate: rate, slots: fair.NewSlots(o.MaxCalls),
		holders: holders, tried: &tried{}, attempts: e.attempts, deliver: e.runs.deliver, now: o.Now,
	}

	// Reports.
	e.metrics = newMetrics(e.census, func() int { return e.calls.slots.Usage().Waiting })
	e.explainer = &explainer{
		own: e.own, runs: e.runs, lines: e.lines, drain: e.drain, troubles: troubles, holders: holders,
		releases: e.releases, quarantine: e.quarantine, operations: o.Operations, hooks: o.Webhooks, compiled: e.hooks,
		endpoints: e.webhooks, engine: e.engine, live: e.anyone, now: o.Now,
	}
	reports := &reporter{
		metrics: e.metrics, recorder: o.Recorder, spans: e.spans, attempts: e.attempts,
		isQuarantined: e.quarantine.hasNamed, log: e.log,
	}

	// The flow of an operation, and its start.
	hooks := &knownHooks{
		compiled: e.hooks, quarantine: e.quarantine, releases: e.releases, callbacks: e.callbacks.Enabled(),
	}
	starter := &starter{
		fence: e.own.mayRequest, writes: writes, hooks: hooks, calls: e.calls, reports: reports, paces: paces,
		trusted: trust.in, callbackURL: e.callbacks.URL, traces: e.spans,
	}
	steps := &stepper{
		holds: e.own.holds, draining: draining, namesOf: e.changes.of, runs: e.runs, writes: writes,
		turns: turnTaking{e.locks, e.lines}, hooks: hooks, starter: starter, reports: reports, busy: e.drain,
		troubles: troubles, stuck: e.stuck, paces: paces, endpoints: e.webhooks, traces: e.spans, log: e.log, now: o.Now,
	}
	operation := steps.newFlow()
	if err := operation.Err(); err != nil {
		return nil, err
	}
	e.intake = &intake{
		store: o.Operations, runs: e.runs, own: e.own, lines: e.lines, flow: operation, engine: e.engine,
		starter: starter, writes: writes, drain: e.drain, troubles: troubles, attempts: e.attempts, spans: e.spans,
		log: e.log,
	}
	e.hookWatcher = &hookWatcher{
		store: o.Webhooks, status: e.status, compiled: e.hooks, endpoints: e.webhooks, changes: e.changes,
		drain: &drainCheck{drain: o.Drain, times: e.hooks.Times, log: e.log},
	}
	e.tenancy = &tenancy{
		own: e.own, fresh: e.fresh, runs: e.runs, engine: e.engine, trust: trust, secrets: e.secrets, status: e.status,
		store: o.Operations, webhooks: hookView, endpoints: e.webhooks, changed: e.intake.changed, log: e.log,
		gained: gainedSlots{added: make(chan struct{}, 1)},
	}

	shares := shares{"places": e.calls.slots.Usage, "calls": rate.Usage, "writes": e.budget.Usage}
	e.metrics.states = append(e.metrics.states, shares, breakers{e.webhooks}, e.stuck)
	if o.Registerer != nil {
		if err := errors.Join(o.Registerer.Register(e.metrics), o.Registerer.Register(e.engine.Collector())); err != nil {
			return nil, fmt.Errorf("cannot register metrics: %w", err)
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
	hooks := e.hookWatcher.drainer(ctx) // subscribed before any operation reads a Webhook
	defer hooks.Close()
	statuses := e.store.WatchStatus()
	defer statuses.Close()
	if !e.own.isPartial() {
		e.tenancy.gain(e.own.layout().All())
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	followers.Go(func() { follow(ctx, hooks) })
	followers.Go(func() { e.hooks.Run(ctx) })
	followers.Go(func() { e.status.run(ctx) })
	followers.Go(func() { e.changes.run(ctx, e.runs.notifyNaming) })
	followers.Go(func() { e.releases.follow(ctx, e.hookWatcher.releaseChanged) })
	followers.Go(func() { e.tenancy.takeOver(ctx) })
	followers.Go(func() {
		e.fresh.run(ctx, e.store, statuses.C, func() { e.lines.wake(stale) }, e.log)
	})
	e.intake.follow(ctx)
	return context.Cause(ctx)
}

// Drain starts no new calls from now on. It returns nil when the calls under way have returned and their results are
// recorded, so that no successor repeats them. If ctx ends first, the error wraps its cause. Drain also fails if Run
// ends first. Operations that wait continue to wait; the context of Run has to end as usual. Drain may be called more
// than once, and before Run.
func (e *Executor) Drain(ctx context.Context) error { return e.drain.wait(ctx, e.stopped) }

// Gain starts to work on the operations of slots, those in the store and those to come. It implements
// group.Participant. A store of these slots only must have gained them before.
func (e *Executor) Gain(_ context.Context, slots shard.Set) error {
	if !e.own.isPartial() {
		return errors.New("cannot work on some slots: the executor was made without Shards")
	}
	select {
	case <-e.stopped:
		return fmt.Errorf("cannot work on slots %s: %w", slots, errEnded)
	default:
	}
	e.tenancy.gain(slots)
	e.tenancy.gained.add(slots)
	return nil
}

// Lose ends the work on slots. It starts none of their calls any more. While ctx lasts, calls under way return and
// their results are recorded. Then they are cut off, and the next replica repeats them with the same keys. The
// executor makes no other request for a leaving slot, whose operations continue in another replica. Lose implements
// group.Participant: it calls quiet for each slot when its work has ended.
func (e *Executor) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	e.tenancy.lose(ctx, slots, quiet)
}

// Taker returns a Taker for the callbacks of this Executor, and of others with the same key. It works whether or not
// the Executor runs.
func (e *Executor) Taker() *Taker {
	m := &masker{hooks: e.hooks, secrets: e.secrets, endpoints: e.webhooks}
	return &Taker{
		client: e.anyone, callbacks: e.callbacks, placeOf: e.locks.placeOf, writes: e.budget, mask: m.mask, now: e.now,
	}
}

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
