package reconcile

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPump: the pump repeats its step at once while there is more to do. It also repeats it at the returned time, after
// a poke, and at least once in maxIdle.
func TestPump(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		var mu sync.Mutex // guards steps
		var steps []time.Duration
		taken := func() []time.Duration {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(steps)
		}
		results := []struct {
			more bool
			next time.Time
		}{
			{more: true, next: begun.Add(time.Hour)},
			{next: begun.Add(time.Minute)},
			{next: begun.Add(-time.Minute)},
			{},
			{next: begun.Add(5 * maxIdle)},
		}
		p := newPump()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.run(ctx, func() (bool, time.Time) {
				mu.Lock()
				defer mu.Unlock()
				steps = append(steps, time.Since(begun))
				if i := len(steps) - 1; i < len(results) {
					return results[i].more, results[i].next
				}
				return false, time.Time{}
			})
		}()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		p.poke() // the fifth step
		p.poke() // merges with the first poke, or makes a sixth step
		before := taken()
		if n := len(before); n != 5 && n != 6 {
			t.Fatalf("%d steps at %v", n, before)
		}
		if want := []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute}; !slices.Equal(before[:5], want) {
			t.Errorf("steps at %v, want %v", before[:5], want)
		}
		time.Sleep(maxIdle + time.Second)
		if after := taken(); len(after) != len(before)+1 {
			t.Errorf("%d steps in maxIdle", len(after)-len(before))
		}
		stop()
		<-ended
	})
}
