package executor

import (
	"context"
	"errors"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/store"
)

// liveRun is what the Executor knows of a run, besides its flow.
type liveRun struct {
	// news is set when the Operation, or a Webhook that it may wait for, has changed.
	news flow.Signal
	// wrote is the version of the run's own last write, whose event is no news.
	wrote string
	// missed is true when something happened since the run looked last.
	missed bool
	// cancelling is true when this run was started to cancel, so that no other is.
	cancelling bool
}

// followOperations starts a run for every operation that wants one, until the context ends.
func (e *Executor) followOperations(ctx context.Context) {
	cursor := e.store.Subscribe(store.SubscribeOptions{Name: "executor"})
	defer cursor.Close()
	for {
		event, err := cursor.Next(ctx)
		if err != nil {
			return
		}
		switch event.Type {
		case store.Added, store.Modified:
			op, err := e.operations.Get(event.Key)
			if err != nil {
				continue // deleted since; that event comes too
			}
			e.changed(ctx, op)
		case store.Deleted:
			e.gone(event.Key)
		case store.Epoch:
			e.log.WarnContext(ctx, "the history of the API server was rolled back", "reason", event.Reason)
		}
	}
}

// changed tells the run of an operation that there is news, or starts one.
func (e *Executor) changed(ctx context.Context, op *v1alpha1.Operation) {
	key := store.Key{Namespace: op.Namespace, Name: op.Name}
	cancel := !op.Terminal() && (op.Spec.CancelRequested || op.DeletionTimestamp != nil)
	e.mu.Lock()
	live := e.live[key]
	if live != nil && (live.wrote == op.ResourceVersion || cancel && live.cancelling) {
		e.mu.Unlock()
		return
	}
	if live != nil && !cancel {
		live.missed = true
		e.mu.Unlock()
		live.news.Set()
		return
	}
	if live == nil && !wantsRun(op) {
		e.mu.Unlock()
		return
	}
	live = &liveRun{cancelling: cancel}
	e.live[key] = live
	e.mu.Unlock()
	e.start(ctx, key, tenant(op), live)
}

// start starts a run. One that is live already is preempted: its calls in flight are cancelled, and the new run begins
// when its code has returned.
func (e *Executor) start(ctx context.Context, key store.Key, group string, live *liveRun) {
	packet := &run{key: key, live: live}
	_, err := e.flow.Start(ctx, e.engine, packet, flow.StartOptions{
		Key: key.String(), Group: group, Mode: flow.Preempt,
		OnEnd: func(result flow.Result) { e.over(ctx, key, group, live, result) },
	})
	if err != nil {
		e.forget(key, live)
		if !errors.Is(err, flow.ErrClosed) {
			e.log.ErrorContext(ctx, "cannot run operation", "key", key, "error", err)
		}
	}
}

// over is called at the end of every run.
func (e *Executor) over(ctx context.Context, key store.Key, group string, live *liveRun, result flow.Result) {
	if result.Status == flow.Failed {
		e.log.ErrorContext(ctx, "operation's flow failed", "key", key, "error", result.Err)
	}
	if missed := e.forget(key, live); missed && ctx.Err() == nil {
		if op, err := e.operations.Get(key); err == nil {
			e.changed(ctx, op)
		}
	}
}

// forget removes a run, unless another has taken its place, and tells whether it missed something.
func (e *Executor) forget(key store.Key, live *liveRun) (missed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live[key] != live {
		return false
	}
	delete(e.live, key)
	return live.missed
}

// look notes that a run is about to look at the newest state, so that what happened before is not missed.
func (e *Executor) look(live *liveRun) {
	e.mu.Lock()
	live.missed = false
	e.mu.Unlock()
	live.news.Clear()
}

// wrote notes the version of a run's own write.
func (e *Executor) wrote(live *liveRun, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	live.wrote = version
}

// gone ends the run of an operation that does not exist any more.
func (e *Executor) gone(key store.Key) {
	e.mu.Lock()
	live := e.live[key]
	delete(e.live, key)
	e.mu.Unlock()
	if live != nil {
		if fiber, ok := e.engine.Find(key.String()); ok {
			fiber.Cancel(errDeleted)
		}
	}
}

var errDeleted = errors.New("the operation was deleted")

// followWebhooks wakes the operations of a namespace when one of its Webhooks appears or changes.
func (e *Executor) followWebhooks(ctx context.Context) {
	cursor := e.hookStore.Subscribe(store.SubscribeOptions{Name: "executor"})
	defer cursor.Close()
	for {
		event, err := cursor.Next(ctx)
		if err != nil {
			return
		}
		if event.Initial || event.Type != store.Added && event.Type != store.Modified {
			continue
		}
		if event.Prior != nil && event.Prior.Generation() == event.Object.Generation() {
			continue // only its status
		}
		e.mu.Lock()
		var woken []*liveRun
		for key, live := range e.live {
			if key.Namespace == event.Key.Namespace {
				live.missed = true
				woken = append(woken, live)
			}
		}
		e.mu.Unlock()
		for _, live := range woken {
			live.news.Set()
		}
	}
}

// wantsRun tells whether there is anything to do for an operation.
func wantsRun(op *v1alpha1.Operation) bool {
	return !op.Terminal() || held(op) || op.Spec.TTLAfterFinished != nil && op.DeletionTimestamp == nil
}

// tenant is the group that runs take turns in.
func tenant(op *v1alpha1.Operation) string {
	if o := op.Spec.RequestObject; o != nil && o.TenantID != "" {
		return op.Namespace + "/" + o.TenantID
	}
	return op.Namespace
}
