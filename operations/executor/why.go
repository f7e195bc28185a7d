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

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// Why explains why an Operation or a Webhook makes no progress, the most direct cause first. It returns no causes for
// other kinds, and for objects that its stores do not have. It implements why.Explainer.
//
// An executor that works on the operation also uses its memory. Another executor uses the object and the Webhooks.
// Its answer differs only in changes that are not written yet (operations.Why). Why looks objects up by key. For each
// operation it waits up to 200 ms if that is being worked on. It reads only operations of slots that are not here
// from the API server. It is safe for concurrent use.
func (e *Executor) Why(ctx context.Context, of why.Object) []why.Cause {
	if of.Name == "" || of.Group != "" && of.Group != v1alpha1.GroupVersion.Group {
		return nil
	}
	key := store.Key{Namespace: of.Namespace, Name: of.Name}
	var all []why.Cause
	switch of.Kind {
	case v1alpha1.KindOperation:
		all = e.whyOperation(ctx, key, chain)
	case v1alpha1.KindWebhook:
		all = e.whyWebhook(key)
	}
	return why.NewAnswer(of, all).Causes
}

// Targets returns the state of the endpoint of a Webhook. If hook is empty, it returns the endpoints of the
// namespace. If both are empty, it returns all endpoints. It knows endpoints that were used, or waited for, since
// this executor was made. It is safe for concurrent use.
func (e *Executor) Targets(namespace, hook string) []webhook.TargetState {
	if hook == "" {
		return e.webhooks.Targets(namespace)
	}
	if s, known := e.webhooks.Target(namespace, hook); known {
		return []webhook.TargetState{s}
	}
	return nil
}

// Finalizer returns the finalizer that the executor sets on Operations, so that callers can tell it from foreign
// ones. It returns false for other kinds.
func (e *Executor) Finalizer(group, kind string) (string, bool) {
	if group != v1alpha1.GroupVersion.Group || kind != v1alpha1.KindOperation {
		return "", false
	}
	return v1alpha1.Finalizer, true
}

// holder is an optional interface of Shards. It explains why a namespace is not served here. A group.Group implements
// it.
type holder interface {
	Why(namespace string, uid types.UID) []why.Cause
}

// whyOperation returns the causes for an operation. It follows at most links operations that wait for each other.
func (e *Executor) whyOperation(ctx context.Context, key store.Key, links int) []why.Cause {
	s := e.see(ctx, key)
	op, err := e.newest(ctx, key, s)
	switch {
	case errors.Is(err, errUntold), ctx.Err() != nil:
		return nil
	case err != nil:
		return []why.Cause{unreadable(err)}
	case op == nil:
		return nil
	}
	now := e.now()
	known := e.known(s)
	all := causes.Of(op, known, now)
	if s.live && !op.PickedUp() {
		all = without(all, why.Parked) // it has a run
	}
	if s.live {
		all = e.withRun(ctx, all, op, s, now, links)
	}
	if !s.live || s.works {
		all = e.beyond(ctx, all, links)
	}
	switch {
	case op.Terminal() || s.behind != nil:
	case !e.hookStore.HasSynced():
		all = append(all, unknown(e.hookStore, op.Namespace, nil)...)
	default:
		all = without(all, why.WebhookMissing, why.NotReleased, why.Quarantined)
		for _, t := range causes.Due(op, known) {
			all = append(all, e.whyCall(op, t, s, now)...)
		}
	}
	if g, ok := e.own.shards.(holder); ok && !op.Terminal() {
		all = append(all, g.Why(op.Namespace, op.UID)...)
	}
	if len(all) == 0 {
		all = append(all, causes.Next(op, now))
	}
	return append(all, causes.Led(op)...)
}

// errUntold reports that the state of an operation could not be read from the API server.
var errUntold = errors.New("the API server does not tell")

// newest returns the newest known state of an operation; nil if it does not exist. It makes a request only for an
// operation whose slot is not here, and returns errUntold if that fails. It returns another error if the object
// cannot be decoded.
func (e *Executor) newest(ctx context.Context, key store.Key, s snapshot) (*v1alpha1.Operation, error) {
	if s.op != nil {
		return s.op, nil
	}
	if known, ok := e.store.Get(key); ok {
		return store.As[v1alpha1.Operation](known)
	}
	if !e.own.isPartial() || e.own.holds(key.Namespace) {
		return nil, nil
	}
	op := &v1alpha1.Operation{}
	switch err := e.anyone.Live().Get(ctx, key, op); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, errUntold
	}
	return op, nil
}

// see returns a snapshot of the run of an operation. If its flow is working, it waits for up to patience, or until ctx
// ends.
func (e *Executor) see(ctx context.Context, key store.Key) (s snapshot) {
	e.runs.read(ctx, key, func(r *run, works bool) {
		s = snapshot{namespace: key.Namespace, draining: e.own.holds(key.Namespace) && e.drain.hasBegun()}
		if r == nil {
			return
		}
		s.live, s.works, s.trouble = true, works, e.troubles.get(&r.news)
		if ahead, waits := e.lines.behind(&r.news); waits {
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

// without returns the causes except those of some types.
func without(all []why.Cause, types ...why.Type) (rest []why.Cause) {
	for _, c := range all {
		keep := true
		for _, t := range types {
			keep = keep && c.Type != t
		}
		if keep {
			rest = append(rest, c)
		}
	}
	return rest
}

// known returns the facts about calls in a snapshot.
func (e *Executor) known(s snapshot) causes.Known {
	k := causes.Known{
		Timeout: func(hook string) time.Duration {
			times, _ := e.hooks.Times(store.Key{Namespace: s.namespace, Name: hook})
			return times.Timeout
		},
		Try: func(hook string) time.Duration {
			times, _ := e.hooks.Times(store.Key{Namespace: s.namespace, Name: hook})
			return times.Try
		},
		Generation: func(hook string) int64 {
			w, ok := e.hookStore.Get(store.Key{Namespace: s.namespace, Name: hook})
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
func (e *Executor) withRun(
	ctx context.Context, all []why.Cause, op *v1alpha1.Operation, s snapshot, now time.Time, links int,
) []why.Cause {
	key := store.Key{Namespace: op.Namespace, Name: op.Name}
	if s.trouble != nil {
		told := s.trouble.causes()
		if len(told) > 0 && s.trouble.err != nil {
			all = without(all, why.DeadlinePassed) // it explains why the end is not recorded
		}
		all = append(all, told...)
	}
	if fiber, ok := e.engine.Find(key.String()); ok {
		if i := fiber.Info(); i.Status == flow.Ready {
			c := why.Cause{
				Type: why.QueuedBehind, Message: "other operations are before it: all workers of its namespace are busy", Since: i.Since,
				Evidence: map[string]string{"namespace": key.Namespace, "fibers": itoa(e.engine.Live())},
				Advice:   "It goes on when it is its turn; if that takes long, see how fast the API server answers.",
				Progress: !fiber.Blocked(),
			}
			for _, told := range fiber.Why(nil) {
				if stack := told.Evidence["stack"]; stack != "" {
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
			Advice:   "It goes on by itself in the process that takes over.",
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
	return append(all, e.whyTurn(ctx, op, s, now, links)...)
}

// chain bounds the explained operations that wait for each other.
const chain = 8

// whyTurn explains why an operation without a call yet does not have its turn. It returns the operations ahead of it,
// and the causes for the first of all.
func (e *Executor) whyTurn(
	ctx context.Context, op *v1alpha1.Operation, s snapshot, now time.Time, links int,
) (all []why.Cause) {
	behind := s.behind
	if behind == nil || *behind == stale {
		if behind != nil || s.place != "" && !e.store.Covers(op.Namespace, s.place) {
			all = append(all, why.Cause{
				Type: why.SourceStale, Since: causes.LastStep(op), Progress: now.Sub(causes.LastStep(op)) < time.Second,
				Message: "the controller does not know yet whether another operation goes first: the events that tell have not come",
				Advice:  "See why the list or watch of operations is behind.",
			})
		}
		return all
	}
	for depth := range links {
		first, err := store.Of[v1alpha1.Operation](e.store).Get(*behind)
		if err != nil || first.Terminal() {
			return all
		}
		held := causes.LockHeld(op, first)
		held.Depth = depth
		all = append(all, held)
		next := e.behind(*behind)
		if next == nil {
			for _, c := range why.Beneath(*held.About, e.whyOperation(ctx, *behind, links-depth-1)) {
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
func (e *Executor) beyond(ctx context.Context, all []why.Cause, links int) []why.Cause {
	i := slices.IndexFunc(all, func(c why.Cause) bool { return c.Type == why.LockHeld && c.About != nil })
	if i < 0 || links == 0 {
		return all
	}
	about := *all[i].About
	key := store.Key{Namespace: about.Namespace, Name: about.Name}
	switch first, err := e.newest(ctx, key, snapshot{}); {
	case err != nil, first == nil && !e.store.HasSynced():
		return all
	case first == nil, first.Terminal(), first.EffectiveID() != all[i].Evidence["operation"]:
		return without(all, why.LockHeld)
	}
	return append(all, why.Beneath(about, e.whyOperation(ctx, key, links-1))...)
}

// behind returns the operation that another one waits for; nil if there is none.
func (e *Executor) behind(key store.Key) *store.Key {
	if n := e.runs.newsOf(key); n != nil {
		if ahead, waits := e.lines.behind(n); waits && ahead != stale {
			return &ahead
		}
	}
	return nil
}

// whyCall explains why the next call of an operation is not made.
func (e *Executor) whyCall(op *v1alpha1.Operation, t record.Target, s snapshot, now time.Time) (all []why.Cause) {
	if _, flies := s.began[t]; flies {
		return nil
	}
	en := record.Entry(&op.Status, t)
	if en != nil && en.AwaitsCallback() {
		return nil // the callback does not depend on the Webhook
	}
	key := store.Key{Namespace: op.Namespace, Name: t.ID}
	w, err := store.Of[v1alpha1.Webhook](e.hookStore).Get(key)
	since := causes.DueSince(op, t, now)
	switch {
	case err != nil:
		if _, there := e.hookStore.Get(key); there {
			c := unreadable(err)
			c.Message, c.About = "webhook "+t.ID+" cannot be read", causes.WebhookObject(op.Namespace, t.ID)
			return []why.Cause{c}
		}
		return []why.Cause{causes.Missing(op.Namespace, t.ID, since)}
	case e.quarantine.has(w):
		return []why.Cause{e.whyQuarantined(w)}
	}
	if due := en == nil || en.NextAttemptAt != nil && !en.NextAttemptAt.After(now); due {
		if withheld := e.whyWithheld(key, since); len(withheld) > 0 {
			return withheld
		}
	}
	for _, c := range e.whyRefused(op, t, w, s.refused[t], s.live, now) {
		if c.Type != why.CircuitOpen || en == nil || en.NextAttemptAt == nil || en.NextAttemptAt.Before(&metav1.MicroTime{Time: c.Until}) {
			all = append(all, c) // else it is over before the call is due
		}
	}
	return all
}

// whyQuarantined returns the cause for a quarantined Webhook, with its start.
func (e *Executor) whyQuarantined(w *v1alpha1.Webhook) why.Cause {
	said, since := "", time.Time{}
	if c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionQuarantined); c != nil {
		said, since = c.Message, c.LastTransitionTime.Time
	}
	return causes.Quarantined(w.Namespace, w.Name, said, since)
}

// whyWithheld returns the cause if credentials of a Webhook are not released, or the causes why that is not known.
func (e *Executor) whyWithheld(hook store.Key, since time.Time) []why.Cause {
	lacks, known := e.releases.withheld(hook)
	switch {
	case !known:
		about := causes.WebhookObject(hook.Namespace, hook.Name)
		all := unknown(e.secrets.secrets, hook.Namespace, about)
		if accounts := e.releases.accounts; accounts != nil {
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

// whyRefused returns the bound for which a call waits.
func (e *Executor) whyRefused(
	op *v1alpha1.Operation, t record.Target, w *v1alpha1.Webhook, r refusal, live bool, now time.Time,
) []why.Cause {
	at, _ := e.webhooks.Target(op.Namespace, t.ID)
	switch {
	case r.share == shareCompile:
		return []why.Cause{{
			Type: why.RateLimited, Message: "webhook " + t.ID + " is to be compiled when it is the turn of its namespace",
			Since: r.since, Evidence: map[string]string{"webhook": t.ID, "share": r.share},
			Advice:   "It goes on by itself. Webhooks with long templates and expressions take longer.",
			Progress: now.Sub(r.since) < compileSoon,
		}}
	case r.share != "":
		return []why.Cause{causes.Share(op.Namespace, r.share, r.since)}
	case r.reason == webhook.WaitRate:
		return []why.Cause{busy(at, string(r.reason), int(at.RatePerSecond), r)}
	case r.reason == webhook.WaitConcurrency:
		return append([]why.Cause{busy(at, string(r.reason), at.Concurrency, r)}, e.whyHeld(op.Namespace, t.ID)...)
	case r.reason == webhook.WaitBreaker && at.Circuit != webhook.Closed, at.Circuit == webhook.Open && at.Until.After(now):
		return []why.Cause{circuit(at)}
	}
	if live {
		return nil
	}
	return slices.DeleteFunc(circuitOf(w), func(c why.Cause) bool { // as another replica has found
		return !c.Until.After(now)
	})
}

// holdersTold bounds the named operations that hold permits of a Webhook.
const holdersTold = 3

// whyHeld returns the operations that hold the permits of a Webhook. Each cause is about its operation, so that
// readers without access to an operation do not learn its name.
func (e *Executor) whyHeld(namespace, hook string) (all []why.Cause) {
	holders := e.holders.list(store.Key{Namespace: namespace, Name: hook})
	for _, h := range holders[:min(len(holders), holdersTold)] {
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
			c.Last = "status " + itoa(status)
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
	c.Message = "webhook " + c.Evidence["webhook"] + " has failed so often that its next call decides whether others are made"
	c.Until = time.Time{}
	return c
}

// whyWebhook explains why a Webhook is not called.
func (e *Executor) whyWebhook(key store.Key) []why.Cause {
	if _, ok := e.hookStore.Get(key); !ok {
		return nil
	}
	w, err := store.Of[v1alpha1.Webhook](e.hookStore).Get(key)
	if err != nil {
		return []why.Cause{unreadable(err)}
	}
	var all []why.Cause
	if e.quarantine.has(w) {
		all = append(all, e.whyQuarantined(w))
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
	all = append(all, e.whyWithheld(key, since)...)
	at, known := e.webhooks.Target(key.Namespace, key.Name)
	var open []why.Cause
	switch {
	case !known:
		open = circuitOf(w)
	case at.Circuit != webhook.Closed:
		open = []why.Cause{circuit(at)}
	}
	for _, c := range open {
		all = append(all, untried(c, e.now()))
	}
	if at.Waiting > 0 {
		bound, most := string(webhook.WaitConcurrency), at.Concurrency
		if most == 0 || at.UnderWay < most {
			bound, most = string(webhook.WaitRate), int(at.RatePerSecond)
		}
		all = append(all, busy(at, bound, most, refusal{}))
		if bound == string(webhook.WaitConcurrency) {
			all = append(all, e.whyHeld(key.Namespace, key.Name)...)
		}
	}
	for i := range all {
		if all[i].About != nil && all[i].About.Kind == v1alpha1.KindWebhook {
			all[i].About = nil // the answer is about it already
		}
	}
	return all
}

func itoa(n int) string { return strconv.Itoa(n) }
