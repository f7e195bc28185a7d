package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// Shards is the membership of this process in a group of replicas. A group.Group implements it. It must be safe for
// concurrent use.
type Shards interface {
	// Layout returns how namespaces are divided into slots.
	Layout() shard.Layout
	// Fence returns an error while no request may be sent for a slot. It returns nil only while it is certain that no
	// other replica has the slot. It must be quick.
	Fence(slot int) error
}

// Slots. An Executor works on the namespaces of the slots that it has gained and not lost. Without Shards, it gains
// the only slot when Run begins. A slot that it holds has a tenure. The tenure counts the work of the slot: the flows
// of its operations, parked or not, their calls, and writes of the statuses of Webhooks. So
//
//   - work starts only under a tenure that is not leaving, and a slot is lost when the count is zero;
//   - all knowledge about a slot ends with its tenure: a slot that is gained again is taken over like any other
//     (freshness).

// tenure is the period in which the executor works on one slot. Executor.mu guards it, except its contexts.
type tenure struct {
	slot    int
	begun   bool           // takeOver has started on the operations in the store
	busy    int            // flows, calls and Webhook writes of the slot
	leaving chan<- *tenure // receives the tenure once, when busy is 0; nil while the slot stays

	// stay ends when the slot begins to leave. life ends when the remaining work of the slot is cut off.
	stay, life  context.Context //nolint:containedctx // they span the tenure
	depart, end context.CancelCauseFunc
}

// errMoved is the cause with which the flows of a leaving slot end. They continue in another replica.
var errMoved = fmt.Errorf("the operation goes on in another replica: %w", flow.ErrMoved)

// Gain starts to work on the operations of slots, those in the store and those to come. It implements
// group.Participant. A store of these slots only must have gained them before.
func (e *Executor) Gain(_ context.Context, slots shard.Set) error {
	if e.shards == nil {
		return errors.New("cannot work on some slots: the executor was made without Shards")
	}
	select {
	case <-e.stopped:
		return fmt.Errorf("cannot work on slots %s: %w", slots, errEnded)
	default:
	}
	e.gain(slots)
	return nil
}

func (e *Executor) gain(slots shard.Set) {
	e.mu.Lock()
	for slot := range slots.Slots() {
		if e.tenures[slot] == nil {
			t := &tenure{slot: slot, begun: e.shards == nil} // without shards, the subscription delivers all operations
			t.stay, t.depart = context.WithCancelCause(context.Background())
			t.life, t.end = context.WithCancelCause(context.Background())
			e.tenures[slot] = t
			e.fresh.gain(slot)
		}
	}
	e.mu.Unlock()
	select {
	case e.gained <- struct{}{}:
	default:
	}
	e.fresh.ask()
}

// Lose ends the work on slots. It starts none of their calls any more. While ctx lasts, calls under way return and
// their results are recorded. Then they are cut off, and the next replica repeats them with the same keys. The
// executor makes no other request for a leaving slot, whose operations continue in another replica. Lose implements
// group.Participant: it calls quiet for each slot when its work has ended.
func (e *Executor) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	idle := make(chan *tenure, e.layout.Len())
	leaving := e.depart(slots, idle)
	cut := ctx.Done()
	for left := len(leaving); left > 0; {
		select {
		case t := <-idle:
			left--
			e.vacate(t)
			quiet(e.layout.Set(t.slot))
		case <-cut:
			cut = nil
			e.cutOff(leaving, fmt.Errorf("%w: %w", errMoved, context.Cause(ctx)))
		}
	}
}

// depart marks slots as leaving and wakes their flows, so that they can end. It sends each tenure to idle when its
// work has ended, and returns the tenures that leave.
func (e *Executor) depart(slots shard.Set, idle chan<- *tenure) (leaving []*tenure) {
	e.mu.Lock()
	for slot := range slots.Slots() {
		if t := e.tenures[slot]; t != nil && t.leaving == nil {
			t.leaving = idle
			leaving = append(leaving, t)
			t.tellIdle()
		}
	}
	woken := e.runsOf(leaving)
	e.mu.Unlock()
	for _, t := range leaving {
		t.depart(errMoved)
	}
	for _, r := range woken {
		r.news.Set()
	}
	return leaving
}

// runsOf returns the runs of tenures. The caller holds mu.
func (e *Executor) runsOf(tenures []*tenure) (runs []*run) {
	slots := e.layout.Set()
	for _, t := range tenures {
		slots = slots.Union(e.layout.Set(t.slot))
	}
	for namespace, space := range e.live {
		if slots.Has(namespace, "") {
			for _, r := range space {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// cutOff cancels the remaining work of leaving tenures.
func (e *Executor) cutOff(leaving []*tenure, cause error) {
	e.mu.Lock()
	runs := e.runsOf(leaving)
	e.mu.Unlock()
	for _, t := range leaving {
		t.end(cause)
	}
	if len(runs) > 0 {
		e.log.Warn("aborting calls in progress; they will be repeated with the same keys", "operations", len(runs), "error", cause)
	}
	for _, r := range runs {
		if fiber, ok := e.engine.Find(r.key.String()); ok {
			fiber.Cancel(cause)
		}
	}
}

// vacate forgets a slot whose work has ended.
func (e *Executor) vacate(t *tenure) {
	t.end(errMoved)
	e.mu.Lock()
	delete(e.tenures, t.slot)
	e.mu.Unlock()
	of := func(namespace string) bool { return e.slotOf(namespace) == t.slot }
	e.fresh.lose(t.slot)
	e.trust.forget(of)
	e.secrets.forget(of)
}

// endTenures ends the contexts of all tenures.
func (e *Executor) endTenures() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tenures {
		t.depart(errEnded)
		t.end(errEnded)
	}
}

func (e *Executor) slotOf(namespace string) int { return e.layout.SlotOf(namespace, "") }

// tenureLocked returns the tenure of a namespace; nil if its slot is not here or is leaving. The caller holds mu.
func (e *Executor) tenureLocked(namespace string) *tenure {
	if t := e.tenures[e.slotOf(namespace)]; t != nil && t.leaving == nil {
		return t
	}
	return nil
}

// holds reports whether the slot of a namespace is here and not leaving.
func (e *Executor) holds(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tenureLocked(namespace) != nil
}

// enter counts work for a namespace, until exit. It returns nil, and counts no work, if the slot is not here or is
// leaving.
func (e *Executor) enter(namespace string) *tenure {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tenureLocked(namespace)
	if t != nil {
		t.busy++
	}
	return t
}

// count counts additional work of a run that is counted already. Such work may start while the slot leaves.
func (e *Executor) count(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tenures[e.slotOf(namespace)].busy++
}

// exit ends work that enter or count has counted.
func (e *Executor) exit(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exitLocked(namespace)
}

func (e *Executor) exitLocked(namespace string) {
	t := e.tenures[e.slotOf(namespace)]
	t.busy--
	t.tellIdle()
}

// tellIdle sends a leaving tenure to Lose if its work has ended. The caller holds mu.
func (t *tenure) tellIdle() {
	if t.leaving != nil && t.busy == 0 {
		t.leaving <- t // never blocks: it has room for every slot, and no work starts again
	}
}

// moves reports whether a run has to end because its slot leaves. A run with calls under way, or with unrecorded
// results, stays.
func (e *Executor) moves(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, busy := e.drain.busy[r]
	return !busy && e.tenureLocked(r.key.Namespace) == nil
}

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
		case <-e.gained:
		case <-ctx.Done():
			return
		}
		begun := e.layout.Set()
		e.mu.Lock()
		for slot, t := range e.tenures {
			if !t.begun {
				t.begun = true
				begun = begun.Union(e.layout.Set(slot))
			}
		}
		e.mu.Unlock()
		if begun.IsEmpty() {
			continue
		}
		for key := range e.releases.webhooks.All() {
			if begun.Has(key.Namespace, "") {
				e.status.mark(key, true)
			}
		}
		for known := range e.store.Snapshot().All() {
			if begun.Has(known.Namespace(), "") {
				e.changed(ctx, known)
			}
		}
	}
}

// both returns a context that ends with either of two contexts, and has the values of the first.
func both(ctx, other context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() { forget(); end(nil) }
}

// isHere reports whether a snapshot has the operation of a key. A slot that is gained again may leave the store once
// more before it is listed there. All objects of its namespaces come and go together.
func (e *Executor) isHere(key store.Key, now store.Snapshot) bool {
	if e.shards == nil {
		return true
	}
	_, ok := now.Get(key)
	return ok
}
