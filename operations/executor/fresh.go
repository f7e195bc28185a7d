package executor

import (
	"context"
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
	layout shard.Layout
	asked  chan struct{} // holds a token while slots may wait for catchUp

	mu    sync.Mutex
	turn  int
	slots map[int]*arrival
}

// arrival is the freshness of a slot since it was gained.
type arrival struct {
	turn   int             // number of earlier gains, which tells a slot that is gained again from its earlier tenure
	scopes map[string]bool // by the namespace that a source watches, "" for all; false while catchUp is working on it
}

func newFreshness(layout shard.Layout) *freshness {
	return &freshness{layout: layout, slots: make(map[int]*arrival), asked: make(chan struct{}, 1)}
}

// gain starts to track a slot; lose stops.
func (f *freshness) gain(slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn++
	f.slots[slot] = &arrival{turn: f.turn, scopes: make(map[string]bool)}
}

func (f *freshness) lose(slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.slots, slot)
}

// ask notifies catchUp of gained slots.
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
	a := f.slots[f.layout.SlotOf(namespace, "")]
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
		slot := f.layout.SlotOf(scope, "")
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

// known records whether slots are fresh in a scope, except slots that were lost or gained again since begin. It
// returns false if no slot is left.
func (f *freshness) known(scope string, begun map[int]int, yes bool) (left bool) {
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

// asking is the back-off between barrier requests to the API server.
var asking = backoff.Policy{Base: 500 * time.Millisecond, Cap: 10 * time.Second}

// catchUp finds out when the store has everything that a predecessor may have written. Until then, a run that is
// about to repeat a recorded action reads its operation first (see confirmed). An operation that locks resources
// waits.
func (e *Executor) catchUp(ctx context.Context, statuses <-chan source.Status) {
	var scopes sync.WaitGroup
	defer scopes.Wait()
	for {
		for _, st := range e.store.Statuses() { // the channel drops statuses when there are very many
			if begun := e.fresh.begin(st.Namespace); begun != nil {
				scopes.Go(func() { e.catchUpIn(ctx, st.Namespace, begun) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-e.fresh.asked:
		case _, ok := <-statuses:
			if !ok {
				return
			}
		}
	}
}

// catchUpIn waits until the slots, in their turns, are fresh in a scope.
func (e *Executor) catchUpIn(ctx context.Context, scope string, begun map[int]int) {
	for try := 0; e.fresh.known(scope, begun, false); try++ {
		err := e.store.BarrierForNamespace(ctx, scope)
		if err == nil {
			e.fresh.known(scope, begun, true)
			e.moveLine(stale)
			return
		}
		if ctx.Err() != nil {
			return
		}
		e.log.WarnContext(ctx, "cannot tell whether the operations known are the newest ones: those begun before are read "+
			"one by one, those that lock resources wait", "namespace", scope, "error", err)
		if backoff.Pause(ctx, asking.Delay(try, rand.Float64)) != nil {
			return
		}
	}
}
