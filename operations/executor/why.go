package executor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// explainer explains why Operations and Webhooks make no progress. It reads snapshots of the runs and the state that
// other parts offer. It has no state of its own, and is safe for concurrent use.
type explainer struct {
	own        *ownership
	runs       *runs
	lines      *lines
	drain      *drain
	troubles   *troubles
	holders    *holders
	releases   *releases
	quarantine *quarantine
	operations *store.Store
	hooks      *store.Store // Webhooks
	compiled   *compiled.Cache
	endpoints  *webhook.Client
	engine     *flow.Engine
	live       *client.Client // reads from the API server
	now        func() time.Time
}

// holder is an optional interface of Shards. It explains why a namespace is not served here. A group.Group implements
// it.
type holder interface {
	Why(namespace string, uid types.UID) []why.Cause
}

// operation returns the causes for an operation. It follows at most links operations that wait for each other.
func (x *explainer) operation(ctx context.Context, key store.Key, links int) []why.Cause {
	s := x.see(ctx, key)
	op, err := x.newest(ctx, key, s)
	switch {
	case errors.Is(err, errNotRead), ctx.Err() != nil:
		return nil
	case err != nil:
		return []why.Cause{unreadable(err)}
	case op == nil:
		return nil
	}
	now := x.now()
	known := x.known(s)
	all := causes.Of(op, known, now)
	if s.live && !op.PickedUp() {
		all = without(all, why.Parked) // it has a run
	}
	if s.live {
		all = x.withRun(ctx, all, op, s, now, links)
	}
	if !s.live || s.works {
		all = x.beyond(ctx, all, links)
	}
	switch {
	case op.Terminal() || s.behind != nil:
	case !x.hooks.HasSynced():
		all = append(all, unknown(x.hooks, op.Namespace, nil)...)
	default:
		all = without(all, why.WebhookMissing, why.NotReleased, why.Quarantined)
		for _, t := range causes.Due(op, known) {
			all = append(all, x.call(op, t, s, now)...)
		}
	}
	if g, ok := x.own.shards.(holder); ok && !op.Terminal() {
		all = append(all, g.Why(op.Namespace, op.UID)...)
	}
	if len(all) == 0 {
		all = append(all, causes.Next(op, now))
	}
	return append(all, causes.Led(op)...)
}

// errNotRead reports that the state of an operation could not be read from the API server.
var errNotRead = errors.New("the API server does not answer")

// newest returns the newest known state of an operation; nil if it does not exist. It makes a request only for an
// operation whose slot is not here, and returns errNotRead if that fails. It returns another error if the object
// cannot be decoded.
func (x *explainer) newest(ctx context.Context, key store.Key, s snapshot) (*v1alpha1.Operation, error) {
	if s.op != nil {
		return s.op, nil
	}
	if known, ok := x.operations.Get(key); ok {
		return store.As[v1alpha1.Operation](known)
	}
	if !x.own.isPartial() || x.own.holds(key.Namespace) {
		return nil, nil
	}
	op := &v1alpha1.Operation{}
	switch err := x.live.Live().Get(ctx, key, op); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, errNotRead
	}
	return op, nil
}

// see returns a snapshot of the run of an operation. If its flow is working, it waits for up to patience, or until ctx
// ends.
func (x *explainer) see(ctx context.Context, key store.Key) (s snapshot) {
	x.runs.read(ctx, key, func(r *run, works bool) {
		s = snapshot{namespace: key.Namespace, draining: x.own.holds(key.Namespace) && x.drain.hasBegun()}
		if r == nil {
			return
		}
		s.live, s.works, s.trouble = true, works, x.troubles.get(&r.news)
		if ahead, waits := x.lines.behind(&r.news); waits {
			s.behind = &ahead
		}
		if !works {
			r.describe(&s)
		}
	})
	return s
}

func unreadable(err error) why.Cause {
	return why.Cause{
		Type: why.Quarantined, Message: "it cannot be read, so nothing is done with it",
		Evidence: map[string]string{"error": err.Error()},
		Advice:   "Correct the object, or delete it.",
	}
}

// known returns the facts about calls in a snapshot.
func (x *explainer) known(s snapshot) causes.Known {
	k := causes.Known{
		Timeout: func(hook string) time.Duration {
			times, _ := x.compiled.Times(store.Key{Namespace: s.namespace, Name: hook})
			return times.Timeout
		},
		Try: func(hook string) time.Duration {
			times, _ := x.compiled.Times(store.Key{Namespace: s.namespace, Name: hook})
			return times.Try
		},
		Generation: func(hook string) int64 {
			w, ok := x.hooks.Get(store.Key{Namespace: s.namespace, Name: hook})
			if !ok {
				return 0
			}
			return w.Generation()
		},
		Next: func(t record.Target) time.Time { return s.later[t] },
	}
	if s.live && !s.works {
		k.Began = func(t record.Target) time.Time { return s.began[t] }
	}
	return k
}

// withRun adds the causes that the run of an operation knows. They are newer than the conditions of the operation.
func (x *explainer) withRun(
	ctx context.Context, all []why.Cause, op *v1alpha1.Operation, s snapshot, now time.Time, links int,
) []why.Cause {
	key := store.Key{Namespace: op.Namespace, Name: op.Name}
	if s.trouble != nil {
		failing := s.trouble.causes()
		if len(failing) > 0 && s.trouble.err != nil {
			all = without(all, why.DeadlinePassed) // it explains why the end is not recorded
		}
		all = append(all, failing...)
	}
	if fiber, ok := x.engine.Find(key.String()); ok {
		if i := fiber.Info(); i.Status == flow.Ready {
			c := why.Cause{
				Type: why.QueuedBehind, Message: "other operations are before it: all workers of its namespace are busy",
				Since:    i.Since,
				Evidence: map[string]string{"namespace": key.Namespace, "fibers": strconv.Itoa(x.engine.Live())},
				Advice:   "It goes on when it is its turn; if that takes long, see how fast the API server answers.",
				Progress: !fiber.Blocked(),
			}
			for _, blocked := range fiber.Why(nil) {
				if stack := blocked.Evidence["stack"]; stack != "" {
					c.Evidence["stack"] = stack
					c.Advice = "The stack is that of the worker with the longest-running operation. " + c.Advice
				}
			}
			all = append(all, c)
		}
	}
	if s.draining && !op.Terminal() {
		all = append(all, why.Cause{
			Type: why.NotLeading, Message: "this process is about to end, and begins no call any more",
			Evidence: map[string]string{"draining": "true"},
			Advice:   "No action is needed. The process that takes over continues it.",
		})
	}
	if s.works {
		return all
	}
	all = without(all, why.LockHeld, why.RateLimited, causes.OutdatedCRD)
	if s.trouble != nil && errors.Is(s.trouble.err, errOutdatedCRD) {
		all = append(all, causes.Outdated(s.trouble.err.Error(), s.trouble.since))
	}
	if s.short {
		all = append(all, causes.Share(key.Namespace, shareWrites, causes.LastStep(op)))
	}
	if op.Spec.CancelRequested || op.DeletionTimestamp != nil { // it ends without waiting for its turn
		return all
	}
	return append(all, x.turn(ctx, op, s, now, links)...)
}

// chain bounds the explained operations that wait for each other.
const chain = 8

// turn explains why an operation without a call yet does not have its turn. It returns the operations ahead of it,
// and the causes for the first of all.
func (x *explainer) turn(
	ctx context.Context, op *v1alpha1.Operation, s snapshot, now time.Time, links int,
) (all []why.Cause) {
	behind := s.behind
	if behind == nil || *behind == stale {
		if behind != nil || s.place != "" && !x.operations.Covers(op.Namespace, s.place) {
			all = append(all, why.Cause{
				Type: why.SourceStale, Since: causes.LastStep(op), Progress: now.Sub(causes.LastStep(op)) < time.Second,
				Message: "the controller does not know yet whether another operation goes first: the events that tell have not " +
					"come",
				Advice: "See why the list or watch of operations is behind.",
			})
		}
		return all
	}
	for depth := range links {
		first, err := store.Of[v1alpha1.Operation](x.operations).Get(*behind)
		if err != nil || first.Terminal() {
			return all
		}
		held := causes.LockHeld(op, first)
		held.Depth = depth
		all = append(all, held)
		next := x.behind(*behind)
		if next == nil {
			for _, c := range why.Beneath(*held.About, x.operation(ctx, *behind, links-depth-1)) {
				c.Depth += depth
				all = append(all, c)
			}
			return all
		}
		op, behind = first, next
	}
	return all
}

// beyond adds the causes for the operation that the condition of another one names as ahead. If that operation has
// ended, it removes the cause LockHeld instead.
func (x *explainer) beyond(ctx context.Context, all []why.Cause, links int) []why.Cause {
	i := slices.IndexFunc(all, func(c why.Cause) bool { return c.Type == why.LockHeld && c.About != nil })
	if i < 0 || links == 0 {
		return all
	}
	about := *all[i].About
	key := store.Key{Namespace: about.Namespace, Name: about.Name}
	switch first, err := x.newest(ctx, key, snapshot{}); {
	case err != nil, first == nil && !x.operations.HasSynced():
		return all
	case first == nil, first.Terminal(), first.EffectiveID() != all[i].Evidence["operation"]:
		return without(all, why.LockHeld)
	}
	return append(all, why.Beneath(about, x.operation(ctx, key, links-1))...)
}

// behind returns the operation that another one waits for; nil if there is none.
func (x *explainer) behind(key store.Key) *store.Key {
	if n := x.runs.newsOf(key); n != nil {
		if ahead, waits := x.lines.behind(n); waits && ahead != stale {
			return &ahead
		}
	}
	return nil
}

// call explains why the next call of an operation is not made.
func (x *explainer) call(op *v1alpha1.Operation, t record.Target, s snapshot, now time.Time) (all []why.Cause) {
	if _, flies := s.began[t]; flies {
		return nil
	}
	en := record.Entry(&op.Status, t)
	if en != nil && en.AwaitsCallback() {
		return nil // the callback does not depend on the Webhook
	}
	key := store.Key{Namespace: op.Namespace, Name: t.ID}
	w, err := store.Of[v1alpha1.Webhook](x.hooks).Get(key)
	since := causes.DueSince(op, t, now)
	switch {
	case err != nil:
		if _, there := x.hooks.Get(key); there {
			c := unreadable(err)
			c.Message, c.About = "webhook "+t.ID+" cannot be read", causes.WebhookObject(op.Namespace, t.ID)
			return []why.Cause{c}
		}
		return []why.Cause{causes.Missing(op.Namespace, t.ID, since)}
	case x.quarantine.has(w):
		return []why.Cause{x.quarantined(w)}
	}
	if due := en == nil || en.NextAttemptAt != nil && !en.NextAttemptAt.After(now); due {
		if withheld := x.withheld(key, since); len(withheld) > 0 {
			return withheld
		}
	}
	for _, c := range x.refused(op, t, w, s.refused[t], s.live, now) {
		if c.Type != why.CircuitOpen || en == nil || en.NextAttemptAt == nil ||
			en.NextAttemptAt.Before(&metav1.MicroTime{Time: c.Until}) {
			all = append(all, c) // else it is over before the call is due
		}
	}
	return all
}

// quarantined returns the cause for a quarantined Webhook, with its start.
func (x *explainer) quarantined(w *v1alpha1.Webhook) why.Cause {
	said, since := "", time.Time{}
	if c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionQuarantined); c != nil {
		said, since = c.Message, c.LastTransitionTime.Time
	}
	return causes.Quarantined(w.Namespace, w.Name, said, since)
}

// withheld returns the cause if credentials of a Webhook are not released, or the causes why that is not known.
func (x *explainer) withheld(hook store.Key, since time.Time) []why.Cause {
	lacks, known := x.releases.withheld(hook)
	switch {
	case !known:
		about := causes.WebhookObject(hook.Namespace, hook.Name)
		all := unknown(x.releases.secrets, hook.Namespace, about)
		if accounts := x.releases.accounts; accounts != nil {
			all = append(all, unknown(accounts, hook.Namespace, about)...)
		}
		return all
	case lacks != nil:
		return []why.Cause{causes.NotReleased(hook.Namespace, hook.Name, "webhook "+hook.Name+": "+lacks.Error(), since)}
	}
	return nil
}

// unknown explains why a store has not synced in a namespace. about is the object that needs it.
func unknown(st *store.Store, namespace string, about *why.Object) (all []why.Cause) {
	resource := st.Options().Resource.Resource
	for _, status := range st.Statuses() {
		if status.Synced || status.Namespace != "" && status.Namespace != namespace {
			continue
		}
		said := status.Message
		if status.Err != nil {
			said = status.Err.Error()
		}
		c, forbidden := causes.ForbiddenText(said)
		if !forbidden {
			c = why.Cause{
				Type: why.SourceStale, Message: "the " + resource + " that it needs are not known yet",
				Evidence: map[string]string{"reason": string(status.Reason), "resource": resource},
				Advice:   "See why the controller cannot list them.",
				Progress: time.Since(status.Since) < 5*time.Second && status.Err == nil,
			}
			if status.Reason == source.ReasonForbidden {
				c.Type = why.Forbidden
			}
		}
		c.Since, c.About = status.Since, about
		if said != "" {
			c.Evidence["error"] = said
		}
		all = append(all, c)
	}
	return all
}

// refused returns the bound for which a call waits.
func (x *explainer) refused(
	op *v1alpha1.Operation, t record.Target, w *v1alpha1.Webhook, r refusal, live bool, now time.Time,
) []why.Cause {
	at, _ := x.endpoints.Target(op.Namespace, t.ID)
	switch {
	case r.share == shareCompile:
		return []why.Cause{{
			Type: why.RateLimited, Message: "webhook " + t.ID + " is to be compiled when it is the turn of its namespace",
			Since: r.since, Evidence: map[string]string{"webhook": t.ID, "share": r.share},
			Advice:   "No action is needed. Webhooks with long templates and expressions take longer.",
			Progress: now.Sub(r.since) < compileSoon,
		}}
	case r.share != "":
		return []why.Cause{causes.Share(op.Namespace, r.share, r.since)}
	case r.reason == webhook.WaitRate:
		return []why.Cause{busy(at, string(r.reason), int(at.RatePerSecond), r)}
	case r.reason == webhook.WaitConcurrency:
		return append([]why.Cause{busy(at, string(r.reason), at.Concurrency, r)}, x.held(op.Namespace, t.ID)...)
	case r.reason == webhook.WaitBreaker && at.Circuit != webhook.Closed, at.Circuit == webhook.Open &&
		at.Until.After(now):
		return []why.Cause{circuit(at)}
	}
	if live {
		return nil
	}
	return slices.DeleteFunc(circuitOf(w), func(c why.Cause) bool { // as another replica has found
		return !c.Until.After(now)
	})
}

// holdersNamed bounds the named operations that hold permits of a Webhook.
const holdersNamed = 3

// held returns the operations that hold the permits of a Webhook. Each cause is about its operation, so that
// readers without access to an operation do not learn its name.
func (x *explainer) held(namespace, hook string) (all []why.Cause) {
	holders := x.holders.list(store.Key{Namespace: namespace, Name: hook})
	for _, h := range holders[:min(len(holders), holdersNamed)] {
		all = append(all, causes.Held(namespace, hook, h.operation.Name, h.since, len(holders)))
	}
	return all
}

func busy(at webhook.TargetState, bound string, most int, r refusal) why.Cause {
	until := r.until
	if bound == string(webhook.WaitConcurrency) {
		until = time.Time{} // a released permit wakes it
	}
	return causes.Busy(at.Namespace, at.Webhook, bound, most, at.Waiting, r.since, until)
}

func circuit(at webhook.TargetState) why.Cause {
	c := causes.Circuit{State: string(at.Circuit), Since: at.Since, Until: at.Until, Failures: at.InARow}
	if len(at.Failures) > 0 {
		c.Last = at.Failures[0].Message
		if status := at.Failures[0].Status; status != 0 && c.Last == "" {
			c.Last = "status " + strconv.Itoa(status)
		}
	}
	return causes.CircuitOpen(at.Namespace, at.Webhook, c)
}

// circuitOf is like circuit, but uses the status of a Webhook. It returns no cause if the circuit is closed.
func circuitOf(w *v1alpha1.Webhook) []why.Cause {
	b := w.Status.Breaker
	if b == nil || b.State != v1alpha1.BreakerOpen && b.State != v1alpha1.BreakerHalfOpen {
		return nil
	}
	c := causes.Circuit{State: string(b.State)}
	if b.Until != nil {
		c.Until = b.Until.Time
	}
	return []why.Cause{causes.CircuitOpen(w.Namespace, w.Name, c)}
}

// untried rewords the cause of an open circuit whose time has passed: the circuit stays open until the next call.
func untried(c why.Cause, now time.Time) why.Cause {
	if c.Until.IsZero() || c.Until.After(now) {
		return c
	}
	c.Message = "webhook " + c.Evidence["webhook"] +
		" has failed so often that its next call decides whether others are made"
	c.Until = time.Time{}
	return c
}

// webhook explains why a Webhook is not called.
func (x *explainer) webhook(key store.Key) []why.Cause {
	if _, ok := x.hooks.Get(key); !ok {
		return nil
	}
	w, err := store.Of[v1alpha1.Webhook](x.hooks).Get(key)
	if err != nil {
		return []why.Cause{unreadable(err)}
	}
	var all []why.Cause
	if x.quarantine.has(w) {
		all = append(all, x.quarantined(w))
	}
	valid := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionValid)
	if valid != nil && valid.Reason == v1alpha1.ReasonInvalid && valid.ObservedGeneration == w.Generation {
		all = append(all, why.Cause{
			Type: why.Quarantined, Message: "it cannot be used as it is: operations that call it fail as Invalid",
			Since: valid.LastTransitionTime.Time, Evidence: map[string]string{"error": valid.Message},
			Advice: "Correct the field that the error names.",
		})
	}
	var since time.Time
	if valid != nil && valid.Reason == v1alpha1.ReasonNotReleased {
		since = valid.LastTransitionTime.Time
	}
	all = append(all, x.withheld(key, since)...)
	at, known := x.endpoints.Target(key.Namespace, key.Name)
	var open []why.Cause
	switch {
	case !known:
		open = circuitOf(w)
	case at.Circuit != webhook.Closed:
		open = []why.Cause{circuit(at)}
	}
	for _, c := range open {
		all = append(all, untried(c, x.now()))
	}
	if at.Waiting > 0 {
		bound, most := string(webhook.WaitConcurrency), at.Concurrency
		if most == 0 || at.UnderWay < most {
			bound, most = string(webhook.WaitRate), int(at.RatePerSecond)
		}
		all = append(all, busy(at, bound, most, refusal{}))
		if bound == string(webhook.WaitConcurrency) {
			all = append(all, x.held(key.Namespace, key.Name)...)
		}
	}
	for i := range all {
		if all[i].About != nil && all[i].About.Kind == v1alpha1.KindWebhook {
			all[i].About = nil // the answer is about it already
		}
	}
	return all
}
