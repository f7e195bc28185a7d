package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/shard"
)

// An Executor works on the namespaces of the slots that it has gained and not lost. Without Shards, it gains the only
// slot when Run begins. All knowledge about a slot ends with its tenure: a slot that is gained again is taken over like
// any other (freshness).

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
	e.gain(slots)
	e.gained.add(slots)
	return nil
}

func (e *Executor) gain(slots shard.Set) {
	for slot := range slots.Slots() {
		e.fresh.gain(slot)
	}
	e.own.slots.Gain(slots)
	e.fresh.ask()
}

// Lose ends the work on slots. It starts none of their calls any more. While ctx lasts, calls under way return and
// their results are recorded. Then they are cut off, and the next replica repeats them with the same keys. The
// executor makes no other request for a leaving slot, whose operations continue in another replica. Lose implements
// group.Participant: it calls quiet for each slot when its work has ended.
func (e *Executor) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	drain := e.own.slots.Lose(slots)
	for _, r := range e.runs.of(slots) {
		r.news.Set() // so that it ends
	}
	drain.Wait(ctx, e.cutOff, func(slots shard.Set) {
		e.vacate(slots)
		quiet(slots)
	})
}

// cutOff cancels the remaining work of leaving slots.
func (e *Executor) cutOff(slots shard.Set, cause error) {
	runs := e.runs.of(slots)
	cause = fmt.Errorf("%w: %w", errMoved, cause)
	if len(runs) > 0 {
		e.log.Warn("aborting calls in progress; they will be repeated with the same keys",
			"operations", len(runs), "error", cause)
	}
	for _, r := range runs {
		if fiber, ok := e.engine.Find(r.key.String()); ok {
			fiber.Cancel(cause)
		}
	}
}

// vacate forgets slots whose work has ended.
func (e *Executor) vacate(slots shard.Set) {
	of := func(namespace string) bool { return slots.Has(namespace, "") }
	for slot := range slots.Slots() {
		e.fresh.lose(slot)
	}
	e.trust.forget(of)
	e.secrets.forget(of)
}

// moves reports whether a run has to end because its slot leaves. A run with calls under way, or with unrecorded
// results, stays.
func (e *Executor) moves(r *run) bool { return !r.busy && !e.own.holds(r.key.Namespace) }

// move ends a flow that continues in another replica.
func (e *Executor) move(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	if fiber, ok := flow.FromContext(ctx); ok {
		fiber.Cancel(errMoved)
	}
	return f.End()
}

// takeOver starts the work on the objects of gained slots that the store has already, until ctx ends.
func (e *Executor) takeOver(ctx context.Context) {
	for {
		select {
		case <-e.gained.added:
		case <-ctx.Done():
			return
		}
		gained := e.gained.take()
		if gained.IsEmpty() {
			continue
		}
		for key := range e.releases.webhooks.All() {
			if gained.Has(key.Namespace, "") {
				e.status.mark(key, true)
			}
		}
		for known := range e.store.Snapshot().All() {
			if gained.Has(known.Namespace(), "") {
				e.changed(ctx, known)
			}
		}
	}
}
