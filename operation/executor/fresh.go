package executor

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// freshness says of which namespaces the store knows all that a predecessor may have written: its state there is no
// older than the beginning of Run. It is safe for concurrent use.
type freshness struct {
	mu     sync.Mutex
	scopes map[string]bool // by the namespace that a source follows, "" for all; false while that is being found out
}

// in says whether a namespace is known so.
func (f *freshness) in(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scopes[""] || f.scopes[namespace]
}

// begin says whether nobody has begun to find out about a scope. It is then up to the caller.
func (f *freshness) begin(scope string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, begun := f.scopes[scope]; begun {
		return false
	}
	f.scopes[scope] = false
	return true
}

func (f *freshness) known(scope string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scopes[scope] = true
}

func newFreshness() *freshness { return &freshness{scopes: make(map[string]bool)} }

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
			if e.fresh.begin(st.Namespace) {
				scopes.Go(func() { e.catchUpIn(ctx, st.Namespace) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case _, ok := <-statuses:
			if !ok {
				return
			}
		}
	}
}

func (e *Executor) catchUpIn(ctx context.Context, scope string) {
	for try := 0; ; try++ {
		err := e.store.BarrierForNamespace(ctx, scope)
		if err == nil {
			e.fresh.known(scope)
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
