package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// TestTurns lets one namespace ask for far more time than there is, in pieces of 100 ms. Another namespace waits only
// for pieces that have started.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 10 {
					_ = turns.do(t.Context(), "hostile", func() { time.Sleep(100 * time.Millisecond) })
				}
			})
		}
		for range 50 {
			time.Sleep(70 * time.Millisecond)
			begun := time.Now()
			if err := turns.do(t.Context(), "victim", func() { time.Sleep(time.Millisecond) }); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 101*time.Millisecond {
				t.Errorf("the victim waited for %v", took)
			}
		}
		all.Wait()
		if len(turns.shares) > 0 || turns.free != 2 {
			t.Errorf("there remain %d shares, %d free slots", len(turns.shares), turns.free)
		}
	})
}

// TestTurnsAreShared: many namespaces that work without a pause get the same time, however long their pieces of work
// take.
func TestTurnsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		had := make([]atomic.Int64, 6)
		for n := range had {
			for range 1 + n { // namespaces with more requests do not get more
				all.Go(func() {
					for turns.do(ctx, fmt.Sprint(n), func() {
						piece := time.Duration(1+3*n) * time.Millisecond
						time.Sleep(piece)
						had[n].Add(int64(piece))
					}) == nil {
					}
				})
			}
		}
		all.Wait()
		for n := range had {
			d := time.Duration(had[n].Load())
			if n > 0 && (d < 15*time.Second || d > 25*time.Second) {
				t.Errorf("namespace %d had %v of two minutes", n, d)
			}
		}
	})
}

func TestAbandonedTurns(t *testing.T) {
	t.Parallel()
	seed.Play(t, 20, func(t *testing.T, play uint64) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns(1 + int(play%3))
			var all sync.WaitGroup
			for w := range 30 {
				rnd := seed.Rand(play, w)
				all.Go(func() {
					for range 20 {
						patience := time.Duration(rnd.IntN(5)) * time.Millisecond
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						ran := false
						err := turns.do(ctx, fmt.Sprint(rnd.IntN(4)),
							func() { ran = true; time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond) })
						cancel()
						if ran != (err == nil) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("ran: %v, %v", ran, err)
						}
					}
				})
			}
			all.Wait()
			if len(turns.shares) > 0 || turns.free != turns.most {
				t.Errorf("there remain %d shares, %d of %d slots are free", len(turns.shares), turns.free, turns.most)
			}
		})
	})
}
