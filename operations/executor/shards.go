package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// Shards is the part that this process has in a group of replicas; a group.Group is one. It must be safe for concurrent
// use.
type Shards interface {
	// Layout says how namespaces are divided into slots.
	Layout() shard.Layout
	// Fence says why nothing may be sent for a slot; nil while it is certain that it is nobody else's. It must be quick.
	Fence(slot int) error
}

// Slots. An Executor works on the namespaces of the slots that it has gained and not lost; one without Shards has gained
// the only slot that there is when Run begins. While it has a slot there is a tenure, which counts what runs of it: the
// flows of its operations, parked or not, their calls, and writes of the statuses of Webhooks. So
//
//   - nothing begins without a tenure that stays, and a slot is lost when nothing is counted any more;
//   - what is known of a slot ends with its tenure: a slot that comes again is taken over like any other (freshness).

// tenure is the time in which the executor works on one slot. It is guarded by Executor.mu, but for its contexts.
type tenure struct {
	slot    int
	begun   bool           // the operations that the store had have been looked at
	busy    int            // what runs of it
	leaving chan<- *tenure // told once when nothing runs any more; nil while the slot stays

	// stay ends when the slot is to leave, life when what still runs of it is cut off.
	stay, life  context.Context //nolint:containedctx // they are those of the slot, as that of a group is
	depart, end context.CancelCauseFunc
}

// errMoved is why the flows of a slot end that leaves: they go on elsewhere.
var errMoved = fmt.Errorf("the operation goes on in another replica: %w", flow.ErrMoved)

// Gain begins to work on the operations of slots, those that the store has and those that it will have. It implements
// group.Participant: a store of just these slots must have been told before.
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
			t := &tenure{slot: slot, begun: e.shards == nil} // else the subscription brings all that there is
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

// Lose ends the work on slots. No call of theirs is begun any more; those under way come back, and what they bring is
// recorded, as long as ctx lasts; then they are cut off, to be made again with the same keys. Nothing else is done or told
// for a slot that leaves: its operations go on elsewhere. It implements group.Participant: quiet is called for each
// slot of which nothing runs any more.
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

// depart begins nothing new of slots from now on, and has their flows look whether they can end. idle is told of each
// that nothing runs of any more. It returns those that leave.
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

// runsOf returns the runs of tenures; the caller holds mu.
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

// cutOff ends what still runs of tenures that leave.
func (e *Executor) cutOff(leaving []*tenure, cause error) {
	e.mu.Lock()
	runs := e.runsOf(leaving)
	e.mu.Unlock()
	for _, t := range leaving {
		t.end(cause)
	}
	if len(runs) > 0 {
		e.log.Warn("calls under way are cut off, to be made again with the same keys", "operations", len(runs), "error", cause)
	}
	for _, r := range runs {
		if fiber, ok := e.engine.Find(r.key.String()); ok {
			fiber.Cancel(cause)
		}
	}
}

// vacate forgets a slot of which nothing runs any more.
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

// endTenures ends what waits for its slot to leave.
func (e *Executor) endTenures() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tenures {
		t.depart(errEnded)
		t.end(errEnded)
	}
}

func (e *Executor) slotOf(namespace string) int { return e.layout.SlotOf(namespace, "") }

// tenureLocked returns that of a namespace, nil if it is not here or leaves; the caller holds mu.
func (e *Executor) tenureLocked(namespace string) *tenure {
	if t := e.tenures[e.slotOf(namespace)]; t != nil && t.leaving == nil {
		return t
	}
	return nil
}

// holds tells whether a namespace is here to stay.
func (e *Executor) holds(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tenureLocked(namespace) != nil
}

// enter counts something that begins for a namespace, until exit. It returns nil, and counts nothing, if the namespace is
// not here to stay.
func (e *Executor) enter(namespace string) *tenure {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tenureLocked(namespace)
	if t != nil {
		t.busy++
	}
	return t
}

// count is enter for a part of what is counted already, which may begin while the slot leaves.
func (e *Executor) count(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tenures[e.slotOf(namespace)].busy++
}

// exit is the end of what was counted.
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

// tellIdle tells who loses the slot that nothing runs of it any more; the caller holds mu.
func (t *tenure) tellIdle() {
	if t.leaving != nil && t.busy == 0 {
		t.leaving <- t // there is room for every slot, and nothing runs again
	}
}

// moves tells whether a run has to end because its slot leaves: unless calls of it are under way, or have brought what is
// not recorded.
func (e *Executor) moves(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, busy := e.drain.busy[r]
	return !busy && e.tenureLocked(r.key.Namespace) == nil
}

// move ends a flow that goes on elsewhere.
func (e *Executor) move(ctx context.Context, f *flow.Fiber[run]) flow.Next {
	if fiber, ok := flow.FromContext(ctx); ok {
		fiber.Cancel(errMoved)
	}
	return f.End()
}

// takeOver begins to work on what the store has of slots that were gained, until ctx ends.
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

// both returns a context that ends with either of two, and has the values of the first.
func both(ctx, other context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() { forget(); end(nil) }
}

// isHere tells whether a snapshot has the namespace of an operation that is worked on. A slot that comes again may leave
// the store once more before it is listed there; its objects come and go together.
func (e *Executor) isHere(key store.Key, now store.Snapshot) bool {
	if e.shards == nil {
		return true
	}
	_, ok := now.Get(key)
	return ok
}
