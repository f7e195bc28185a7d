package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPump: the pump repeats its step at once while there is more, at the returned time, after a poke, and at least
// once in maxIdle.
func TestPump(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		var steps []time.Duration
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
				steps = append(steps, time.Since(begun))
				if i := len(steps) - 1; i < len(results) {
					return results[i].more, results[i].next
				}
				return false, time.Time{}
			})
		}()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		p.poke() // the fifth step
		p.poke() // merges with the first poke, or makes a sixth step
		synctest.Wait()
		if n := len(steps); n != 5 && n != 6 {
			t.Fatalf("%d steps at %v", n, steps)
		}
		if want := []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute}; !slices.Equal(steps[:5], want) {
			t.Errorf("steps at %v, want %v", steps[:5], want)
		}
		before := len(steps)
		time.Sleep(maxIdle + time.Second)
		if len(steps) != before+1 {
			t.Errorf("%d steps in maxIdle", len(steps)-before)
		}
		stop()
		<-ended
	})
}
