package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
)

// TestRace lets many callers schedule for the same resource at once, without an operation and after one has ended.
func TestRace(t *testing.T) {
	b := setup(t)
	for round := range 4 {
		const n = 8
		var won []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				id := fmt.Sprintf("r%d-%d", round, i)
				op, err := b.Scheduler.Schedule(b.Ctx, operations.Request{
					ID: id, Type: operations.Update, Resource: operationbed.Shop,
				})
				var running *operations.InProgressError
				switch {
				case err == nil:
					mu.Lock()
					won = append(won, op.EffectiveID())
					mu.Unlock()
				case !errors.As(err, &running) || !errors.Is(err, operations.ErrInProgress) ||
					!strings.HasPrefix(running.Running.EffectiveID(), fmt.Sprintf("r%d-", round)):
					t.Errorf("loser: %v", err)
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: winners %v", round, won)
		}
		stop := b.Start(nil) // earlier, it would end operations while callers still schedule
		b.End(b.Get())
		stop()
	}
}
