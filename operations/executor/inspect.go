package executor

import (
	"context"
	"slices"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
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
		all = e.explainer.operation(ctx, key, chain)
	case v1alpha1.KindWebhook:
		all = e.explainer.webhook(key)
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

// Flows returns the engine that runs the operations, for showing its fibers.
func (e *Executor) Flows() *flow.Engine { return e.engine }

// Stuck returns the stuck operations of this executor, each with its first cause. The caller owns the map. It is safe
// for concurrent use.
func (e *Executor) Stuck() map[store.Key]why.Type { return e.stuck.all() }

// Attempts returns the remembered tries and polls of an operation, given by its key and id. The executor keeps the
// last 16 attempts of an operation with more than one, in memory only. It drops those of ended operations when it
// needs the memory. Attempts waits up to 200 ms if the operation is being worked on. It is safe for concurrent use.
func (e *Executor) Attempts(ctx context.Context, key store.Key, operationID string) Attempts {
	a := e.attempts.of(key, operationID)
	if len(a.Last) == 0 {
		return a
	}
	s := e.explainer.see(ctx, key)
	if s.op == nil || s.op.EffectiveID() != operationID {
		return a
	}
	n := len(a.Last)
	for t, since := range s.began {
		en := record.Entry(&s.op.Status, t)
		a.Last = append(a.Last, Attempt{
			Purpose: webhook.Purpose(t.Purpose), Webhook: t.ID, Began: since, Poll: en != nil && en.WebhookPollURL != "",
		})
	}
	slices.SortFunc(a.Last[n:], func(a, b Attempt) int { return a.Began.Compare(b.Began) })
	return a
}
