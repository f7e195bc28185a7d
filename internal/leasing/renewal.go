package leasing

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrExpired means that a hold was not renewed within its bound.
var ErrExpired = errors.New("the lease was not renewed in time")

// Renewal keeps a hold on a Lease. The hold lasts for Bound from the start of the last successful renewal. The fields
// must not change after the first call. The methods are safe for concurrent use.
type Renewal struct {
	Clock Clock
	Bound time.Duration

	last atomic.Pointer[Stamp] // start of the last successful renewal; nil: no hold
}

// Renewed begins or extends the hold. begun is the time before the request of the renewal.
func (r *Renewal) Renewed(begun Stamp) { r.last.Store(&begun) }

// End ends the hold.
func (r *Renewal) End() { r.last.Store(nil) }

// Age returns the time since the start of the last successful renewal. held is false if there is no hold.
func (r *Renewal) Age() (age time.Duration, held bool) {
	last := r.last.Load()
	if last == nil {
		return 0, false
	}
	return last.AtMost(r.Clock.Stamp().Time), true
}

// Fresh reports whether the hold is certain. It reads only the clock.
func (r *Renewal) Fresh() bool {
	age, held := r.Age()
	return held && age < r.Bound
}

// Run calls renew after wait, and then again after each wait that renew returns. renew sends one renewal, which begins
// at begun, and calls Renewed if it succeeds. Its context ends when the hold expires.
//
// Run returns nil when ctx ends, ErrExpired when the hold has expired, and otherwise the error of renew. The hold
// expires even if the next renewal would succeed, since work must not continue across a gap.
func (r *Renewal) Run(
	ctx context.Context, wait time.Duration,
	renew func(ctx context.Context, begun Stamp) (wait time.Duration, err error),
) error {
	for {
		select {
		case <-r.Clock.after(min(wait, max(r.left(), 0))):
		case <-ctx.Done():
			return nil
		}
		begun, left := r.Clock.Stamp(), r.left()
		if left <= 0 {
			return ErrExpired
		}
		attempt, cancel := context.WithTimeout(ctx, left)
		next, err := renew(attempt, begun)
		cancel()
		if err != nil {
			return err
		}
		wait = next
	}
}

// left returns for how long the hold lasts without a renewal.
func (r *Renewal) left() time.Duration {
	age, held := r.Age()
	if !held {
		return 0
	}
	return r.Bound - age
}
