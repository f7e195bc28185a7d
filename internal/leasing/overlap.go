package leasing

import (
	"context"
	"sync"
	"time"
)

// Extend is Renewed for renewals whose responses may come in any order. The older of two renewals changes nothing. A
// hold that has expired stays so, and Extend returns false.
func (r *Renewal) Extend(begun Stamp) bool {
	for {
		last := r.last.Load()
		if last != nil && !r.Fresh() {
			return false
		}
		if last == nil || begun.After(last.Time) {
			if !r.last.CompareAndSwap(last, &begun) {
				continue
			}
		}
		return r.Fresh()
	}
}

// RunOverlapping calls renew at once and then every period, on goroutines of their own: a renewal that has no response
// does not delay the next one. If there is none after a period, the server is slow, and the next calls come after half
// a period. After a failure, the next one comes after a third of it. renew sends one renewal and calls Extend if it
// succeeds. Its context ends after Bound, since the response would then prove nothing.
//
// RunOverlapping returns nil when ctx ends, ErrExpired when there is no hold for Bound or the hold has expired, and
// otherwise the error of renew. It returns when no call of renew runs any more.
func (r *Renewal) RunOverlapping(
	ctx context.Context, period time.Duration,
	renew func(ctx context.Context, begun Stamp) (renewed bool, err error),
) error {
	type result struct {
		renewed bool
		err     error
	}
	ctx, stop := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer stop()
	results := make(chan result)
	send := func(begun Stamp) {
		attempt, cancel := context.WithTimeout(ctx, r.Bound)
		defer cancel()
		renewed, err := renew(attempt, begun)
		select {
		case results <- result{renewed, err}:
		case <-ctx.Done():
		}
	}
	begun := r.Clock.Stamp()
	last, wait, waiting := begun, time.Duration(0), 0
	for {
		now := r.Clock.Stamp()
		left := r.Bound - begun.AtMost(now.Time)
		if _, held := r.Age(); held {
			left = r.left()
		}
		if left <= 0 {
			return ErrExpired
		}
		due := wait - last.AtMost(now.Time)
		if due <= 0 {
			if wait = period; waiting > 0 {
				wait = period / 2
			}
			last, due = now, wait
			waiting++
			calls.Go(func() { send(now) })
		}
		select {
		case <-r.Clock.after(min(due, left)):
		case got := <-results:
			waiting--
			if got.err != nil {
				return got.err
			}
			if !got.renewed {
				wait = min(wait, last.AtMost(r.Clock.Stamp().Time)+period/3)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// HasAfter reports whether a renewal that began after begun has succeeded.
func (r *Renewal) HasAfter(begun Stamp) bool {
	last := r.last.Load()
	return last != nil && last.After(begun.Time)
}
