package executor

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// intake starts a run for each operation that needs one, and cleans up at the end of the run. It has no state: that is
// in runs.
type intake struct {
	store    *store.Store
	runs     *runs
	own      *ownership
	lines    *lines
	flow     *flow.Flow[run]
	engine   *flow.Engine
	starter  *starter
	writes   draftWriter
	drain    *drain
	troubles *troubles
	attempts *attempts
	spans    spans
	log      *slog.Logger
}

// follow starts a run for every operation that needs one, until ctx ends.
func (w *intake) follow(ctx context.Context) {
	follow(ctx, w.store.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "executor", HoldWrites: owner},
		Consume: each(ctx, func(event *store.Event) {
			switch event.Type {
			case store.Added, store.Modified:
				if known, ok := w.store.Get(event.Key); ok { // else it was deleted: that event follows
					w.changed(ctx, known)
				}
			case store.Deleted:
				w.onDeleted(event.Key)
			case store.Left: // Lose or takeOver handles the slot
			case store.Epoch:
				w.runs.forgetAcceptances()
				w.log.WarnContext(ctx, "the history of the API server was rolled back", "reason", event.Reason)
			}
			if event.Object != nil {
				w.lines.wake(event.Key)
			}
		}),
	}))
}

// changed notifies the run of an operation, or starts one. It decodes the object only if a run may have to start.
func (w *intake) changed(ctx context.Context, known *store.Record) {
	key := known.Key()
	for !w.runs.notify(key) {
		op, err := store.As[v1alpha1.Operation](known)
		if err != nil || !wantsRun(op) {
			return
		}
		r := newRun(key, op)
		if !op.PickedUp() {
			accept(w.runs, w.lines, r, op)
		}
		added, here := w.runs.add(r, func() bool { _, ok := w.own.enter(key.Namespace); return ok })
		if !here { // another replica has it, or will have it
			return
		}
		if added {
			w.lines.wake(key) // a lock may be waiting for its acceptance
			w.begin(ctx, r, op)
			return
		}
	}
}

// begin starts the flow of a run. op is its operation.
func (w *intake) begin(ctx context.Context, r *run, op *v1alpha1.Operation) {
	from, spans := w.spans.follow(ctx, op)
	_, err := w.flow.Start(from, w.engine, r, flow.StartOptions{
		Trace: spans, Key: r.key.String(), Subgroup: r.tenant, Mode: flow.Coalesce, Reported: true,
		OnEnd: func(result flow.Result) { w.over(ctx, r, result) },
	})
	if err != nil {
		w.forget(r)
		if !errors.Is(err, flow.ErrClosed) {
			w.log.ErrorContext(ctx, "cannot run operation", "key", r.key, "error", err)
		}
	}
}

// over cleans up at the end of every run.
func (w *intake) over(ctx context.Context, r *run, result flow.Result) {
	if r.work != nil {
		w.runs.conceal(r)
		r.cut(errOver)
		w.starter.withdraw(r, allOf)
		w.writes.refund(r.draft())
	}
	if result.Status == flow.Failed && ctx.Err() == nil && !errors.Is(result.Err, flow.ErrInterrupted) {
		w.log.ErrorContext(ctx, "operation's flow failed", "key", r.key, "error", result.Err)
	}
	w.attempts.end(r.key)
	if missed := w.forget(r); missed && ctx.Err() == nil {
		if known, ok := w.store.Get(r.key); ok {
			w.changed(ctx, known)
		}
	}
}

// forget removes a run, unless another run has taken its place. It reports whether the run has missed an event.
func (w *intake) forget(r *run) (missed bool) {
	defer w.own.leave(r.key.Namespace)
	w.lines.leave(&r.news)
	if r.busy {
		w.drain.leave(&r.news)
	}
	if r.work != nil && r.troubled {
		w.troubles.remove(&r.news)
	}
	return w.runs.remove(r)
}

// onDeleted ends the run of a deleted operation.
func (w *intake) onDeleted(key store.Key) {
	if w.runs.forget(key) {
		if fiber, ok := w.engine.Find(key.String()); ok {
			fiber.Cancel(errDeleted)
		}
	}
}

var errDeleted = errors.New("the operation was deleted")

// wantsRun reports whether an operation needs a run.
func wantsRun(op *v1alpha1.Operation) bool {
	return !op.Terminal() || held(op) || op.Spec.TTLAfterFinished != nil && op.DeletionTimestamp == nil
}
