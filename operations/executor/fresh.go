package executor

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// freshness tracks the namespaces in which the store has everything that a predecessor may have written. There the
// state of the store is at least as new as the start of the slot's tenure. It is safe for concurrent use.
type freshness struct {
	asked chan struct{} // holds a token while slots may wait for run

	mu    sync.Mutex
	held  shard.Set // the keys of slots
	turn  int
	slots map[int]*arrival
}

// arrival is the freshness of a slot since it was gained.
type arrival struct {
	turn   int             // number of earlier gains, which tells a slot that is gained again from its earlier tenure
	scopes map[string]bool // by the namespace that a source watches, "" for all; false while run is working on it
}

func newFreshness(layout shard.Layout) *freshness {
	return &freshness{held: layout.Set(), slots: make(map[int]*arrival), asked: make(chan struct{}, 1)}
}

// gain starts to track slots; lose stops.
func (f *freshness) gain(slots shard.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = f.held.Union(slots)
	for slot := range slots.Slots() {
		f.turn++
		f.slots[slot] = &arrival{turn: f.turn, scopes: make(map[string]bool)}
	}
}

func (f *freshness) lose(slots shard.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = f.held.Minus(slots)
	for slot := range slots.Slots() {
		delete(f.slots, slot)
	}
}

// ask notifies run of gained slots.
func (f *freshness) ask() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// in reports whether the store is fresh in a namespace.
func (f *freshness) in(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.slots[f.held.Layout().SlotOf(namespace, "")]
	return a != nil && (a.scopes[""] || a.scopes[namespace])
}

// begin returns the slots of a scope that no goroutine has checked yet, with their turns. The caller has to check
// them.
func (f *freshness) begin(scope string) map[int]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var begun map[int]int
	try := func(slot int, a *arrival) {
		if _, known := a.scopes[scope]; known {
			return
		}
		if begun == nil {
			begun = make(map[int]int)
		}
		a.scopes[scope], begun[slot] = false, a.turn
	}
	if scope != "" {
		slot := f.held.Layout().SlotOf(scope, "")
		if a := f.slots[slot]; a != nil {
			try(slot, a)
		}
		return begun
	}
	for slot, a := range f.slots {
		try(slot, a)
	}
	return begun
}

// report records whether slots are fresh in a scope, except slots that were lost or gained again since begin. It
// returns false if no slot is left.
func (f *freshness) report(scope string, begun map[int]int, yes bool) (left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for slot, turn := range begun {
		if a := f.slots[slot]; a != nil && a.turn == turn {
			a.scopes[scope] = yes
			left = true
		}
	}
	return left
}

// stale is the key of the line of operations that wait until their namespace is fresh. No operation has this key.
var stale = store.Key{}

// barrierRetry is the back-off between barrier requests to the API server.
var barrierRetry = backoff.Policy{Base: 500 * time.Millisecond, Cap: 10 * time.Second}

// run finds out when the store has everything that a predecessor may have written, until ctx ends. Until then, an
// operation whose recorded action is about to be repeated is read first (see stored.confirmed). An operation that locks
// resources waits. run calls onFresh whenever slots have become fresh.
func (f *freshness) run(
	ctx context.Context, st *store.Store, statuses <-chan source.Status, onFresh func(), log *slog.Logger,
) {
	var scopes sync.WaitGroup
	defer scopes.Wait()
	for {
		for _, known := range st.Statuses() { // the channel drops statuses when there are very many
			if begun := f.begin(known.Namespace); begun != nil {
				scopes.Go(func() {
					if f.catchUp(ctx, st, known.Namespace, begun, log) {
						onFresh()
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.asked:
		case _, ok := <-statuses:
			if !ok {
				return
			}
		}
	}
}

// catchUp waits until the slots, in their turns, are fresh in a scope. It returns false if they were lost, or if ctx
// ends before.
func (f *freshness) catchUp(
	ctx context.Context, st *store.Store, scope string, begun map[int]int, log *slog.Logger,
) (fresh bool) {
	for try := 0; f.report(scope, begun, false); try++ {
		err := st.BarrierForNamespace(ctx, scope)
		if err == nil {
			f.report(scope, begun, true)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		log.WarnContext(ctx, "cannot tell whether the operations known are the newest ones: those begun before are read "+
			"one by one, those that lock resources wait", "namespace", scope, "error", err)
		if backoff.Pause(ctx, barrierRetry.Delay(try, rand.Float64)) != nil {
			return false
		}
	}
	return false
}
