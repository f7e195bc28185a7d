package executor

import (
	"context"
	"errors"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// followOperations starts a run for every operation that needs one, until ctx ends.
func (e *Executor) followOperations(ctx context.Context) {
	follow(ctx, e.store.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "executor", HoldWrites: owner},
		Consume: each(ctx, func(event *store.Event) {
			switch event.Type {
			case store.Added, store.Modified:
				if known, ok := e.store.Get(event.Key); ok { // else it was deleted: that event follows
					e.changed(ctx, known)
				}
			case store.Deleted:
				e.onDeleted(event.Key)
			case store.Left: // Lose or takeOver handles the slot
			case store.Epoch:
				e.runs.forgetAcceptances()
				e.log.WarnContext(ctx, "the history of the API server was rolled back", "reason", event.Reason)
			}
			if event.Object != nil {
				e.lines.wake(event.Key)
			}
		}),
	}))
}

// changed notifies the run of an operation, or starts one. It decodes the object only if a run may have to start.
func (e *Executor) changed(ctx context.Context, known *store.Record) {
	key := known.Key()
	for !e.runs.notify(key) {
		op, err := store.As[v1alpha1.Operation](known)
		if err != nil || !wantsRun(op) {
			return
		}
		r := &run{key: key, tenant: tenant(op)}
		if op.Terminal() {
			r.phase = ended
		}
		if !op.PickedUp() {
			e.accept(r, op)
		}
		added, here := e.runs.add(r, func() bool { _, ok := e.own.enter(key.Namespace); return ok })
		if !here { // another replica has it, or will have it
			return
		}
		if added {
			e.lines.wake(key) // a lock may be waiting for its acceptance
			e.begin(ctx, r, op)
			return
		}
	}
}

// begin starts the flow of a run. op is its operation.
func (e *Executor) begin(ctx context.Context, r *run, op *v1alpha1.Operation) {
	from, spans := e.spans.follow(ctx, op)
	_, err := e.flow.Start(from, e.engine, r, flow.StartOptions{
		Trace: spans, Key: r.key.String(), Subgroup: r.tenant, Mode: flow.Coalesce, Reported: true,
		OnEnd: func(result flow.Result) { e.over(ctx, r, result) },
	})
	if err != nil {
		e.forget(r)
		if !errors.Is(err, flow.ErrClosed) {
			e.log.ErrorContext(ctx, "cannot run operation", "key", r.key, "error", err)
		}
	}
}

// over cleans up at the end of every run.
func (e *Executor) over(ctx context.Context, r *run, result flow.Result) {
	if r.work != nil {
		e.runs.conceal(r)
		r.cut(errOver)
		e.withdraw(r, allOf)
		e.writes.refund(r.draft())
	}
	if result.Status == flow.Failed && ctx.Err() == nil && !errors.Is(result.Err, flow.ErrInterrupted) {
		e.log.ErrorContext(ctx, "operation's flow failed", "key", r.key, "error", result.Err)
	}
	e.attempts.end(r.key)
	if missed := e.forget(r); missed && ctx.Err() == nil {
		if known, ok := e.store.Get(r.key); ok {
			e.changed(ctx, known)
		}
	}
}

// forget removes a run, unless another run has taken its place. It reports whether the run has missed an event.
func (e *Executor) forget(r *run) (missed bool) {
	defer e.own.leave(r.key.Namespace)
	e.lines.leave(&r.news)
	if r.busy {
		e.drain.leave(&r.news)
	}
	if r.work != nil && r.troubled {
		e.troubles.remove(&r.news)
	}
	return e.runs.remove(r)
}

// onDeleted ends the run of a deleted operation.
func (e *Executor) onDeleted(key store.Key) {
	if e.runs.forget(key) {
		if fiber, ok := e.engine.Find(key.String()); ok {
			fiber.Cancel(errDeleted)
		}
	}
}

var errDeleted = errors.New("the operation was deleted")

// drainWebhooks returns a drainer that wakes the runs that name a Webhook when it appears, changes or is deleted. The
// cost of an event does not depend on the number of operations in its namespace.
func (e *Executor) drainWebhooks(ctx context.Context) *store.Drainer {
	return e.hookStore.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "executor"},
		Consume: each(ctx, func(event *store.Event) {
			e.status.webhookChanged(*event)
			if event.Type == store.Deleted {
				e.hooks.Forget(event.Key)
				e.webhooks.Forget(event.Key.Namespace, event.Key.Name)
			}
			if wakesOperations(*event) {
				e.changes.add(event.Key.Namespace, event.Key.Name)
			}
		}),
	})
}

// wakesOperations reports whether operations that name the Webhook have to be woken.
func wakesOperations(event store.Event) bool {
	switch {
	case event.Initial: // runs start after it
		return false
	case event.Type == store.Modified:
		return event.Prior == nil || event.Prior.Generation() != event.Object.Generation() // else only its status has changed
	default:
		return event.Type == store.Added || event.Type == store.Deleted
	}
}

// wantsRun reports whether an operation needs a run.
func wantsRun(op *v1alpha1.Operation) bool {
	return !op.Terminal() || held(op) || op.Spec.TTLAfterFinished != nil && op.DeletionTimestamp == nil
}

// tenant returns the tenant of an operation within its namespace; empty if there is none.
func tenant(op *v1alpha1.Operation) string {
	if o := op.Spec.RequestObject; o != nil {
		return o.TenantID
	}
	return ""
}

// releaseChanged has a Webhook compiled again after a change of the release of its credentials. It wakes the operations
// that may wait for it.
func (e *Executor) releaseChanged(hook store.Key) {
	e.status.mark(hook, true)
	e.changes.add(hook.Namespace, hook.Name)
}
