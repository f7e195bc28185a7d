package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// TestResponseLimiter acquires and releases slots of random namespaces. There are never more answers than slots, and no
// state remains at the end.
func TestResponseLimiter(t *testing.T) {
	t.Parallel()
	seed.Play(t, 20, func(t *testing.T, play uint64) {
		synctest.Test(t, func(t *testing.T) {
			const places = 4
			l := &responseLimiter{free: places}
			var all sync.WaitGroup
			var mu sync.Mutex
			inside, evicted := 0, 0
			visit := func(rnd *rand.Rand, namespace string) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				limited, stop := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(50))*time.Millisecond)
				defer stop()
				done, err := l.acquire(limited, namespace, cancel)
				if err != nil {
					return
				}
				defer done()
				mu.Lock()
				if inside++; inside > places {
					t.Errorf("%d are inside", inside)
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond):
				}
				mu.Lock()
				inside--
				if errors.Is(context.Cause(ctx), errRevoked) {
					evicted++
				}
				mu.Unlock()
			}
			for w := range 24 {
				rnd := seed.Rand(play, w)
				all.Go(func() {
					for range 20 {
						visit(rnd, fmt.Sprint(rnd.IntN(1+w%4)))
						time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
					}
				})
			}
			all.Wait()
			if left := l.reading.Len() + l.waiting.Len(); l.free != places || l.revoked != 0 || left > 0 {
				t.Errorf("%d of %d slots are free, %d revoked, %d answers are left", l.free, places, l.revoked, left)
			}
			t.Logf("%d returned their places", evicted)
		})
	})
}
