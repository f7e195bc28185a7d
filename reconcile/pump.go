package reconcile

import (
	"context"
	"time"
)

// pump repeats a step: after a call of poke, at the time that the step returned, and at once if there is more to do. An
// idle controller has no other goroutine.
type pump struct{ wake chan struct{} }

func newPump() *pump { return &pump{wake: make(chan struct{}, 1)} }

// poke makes the pump repeat the step. It does not block and may be called under any lock.
func (p *pump) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// maxIdle bounds the time between two steps.
const maxIdle = time.Hour

// run repeats step until ctx ends. next is the time of the next step without a poke; zero means none.
func (p *pump) run(ctx context.Context, step func() (more bool, next time.Time)) {
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	for ctx.Err() == nil {
		more, next := step()
		if more {
			continue
		}
		wait := maxIdle
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
}
