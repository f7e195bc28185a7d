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

// freshness says of which namespaces the store knows all that a predecessor may have written: its state there is no
// older than the beginning of the tenure of their slot. It is safe for concurrent use.
type freshness struct {
	layout shard.Layout
	asked  chan struct{} // holds a token while there may be slots that nobody has begun to find out about

	mu    sync.Mutex
	turn  int
	slots map[int]*arrival
}

// arrival is what is known of a slot since it was gained.
type arrival struct {
	turn   int             // how many were gained before, so that a slot that comes again is told from what it was
	scopes map[string]bool // by the namespace that a source follows, "" for all; false while that is being found out
}

func newFreshness(layout shard.Layout) *freshness {
	return &freshness{layout: layout, slots: make(map[int]*arrival), asked: make(chan struct{}, 1)}
}

// gain has a slot be found out about, lose forgets it.
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

// ask has slots be found out about that were gained.
func (f *freshness) ask() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// in says whether a namespace is known so.
func (f *freshness) in(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.slots[f.layout.SlotOf(namespace, "")]
	return a != nil && (a.scopes[""] || a.scopes[namespace])
}

// begin returns the slots of a scope that nobody has begun to find out about, and their turns. That is up to the caller
// then.
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

// known notes that slots are known so in a scope, if they were not lost since. It returns false if none is left.
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

// stale is the line of the operations that wait until their namespace is known to be fresh. It is the key of no
// operation.
var stale = store.Key{}

// asking is how long to wait until the API server is asked again how new its state is.
var asking = backoff.Policy{Base: 500 * time.Millisecond, Cap: 10 * time.Second}

// catchUp finds out when the store knows all that a predecessor may have written. Until then, a run that is about to
// repeat what was begun reads its operation itself before (see confirmed), and one that locks anything waits.
func (e *Executor) catchUp(ctx context.Context, statuses <-chan source.Status) {
	var scopes sync.WaitGroup
	defer scopes.Wait()
	for {
		for _, st := range e.store.Statuses() { // of very many at a time the channel loses some
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

// catchUpIn finds out about slots, since their turns, in a scope.
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
