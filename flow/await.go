package flow

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// start starts watching the waits of f, which wake w. backstop is the default interval of live checks. After an error
// some waits may be watched.
func (a *awaiting) start(waits []Wait, w Waker, backstop time.Duration, t *timeline, now int64, f *fiber) error {
	a.waits = make([]waiting, 0, len(waits))
	blind := 0 // waits that are checked only when another wait wakes
	for _, wait := range waits {
		switch t := wait.(type) {
		case nil:
			return fmt.Errorf("%w: cannot await: wait is nil", ErrInvalid)
		case timeout:
			a.timeoutAt = earlier(a.timeoutAt, plus(now, time.Duration(t)))
			continue
		case until:
		case polled:
			if t.check == nil {
				return fmt.Errorf("%w: cannot await: Func has no function", ErrInvalid)
			}
			if a.limitBackstop(backstop, wait); t.interval <= 0 {
				blind++
			}
		default:
			a.limitBackstop(backstop, wait)
		}
		var stop func()
		if err := guard(f, func() error { stop = wait.Watch(w); return nil }); err != nil {
			return err
		}
		a.waits = append(a.waits, waiting{wait, stop})
	}
	if blind > 0 && blind == len(waits) {
		return fmt.Errorf("%w: cannot await: Func has no interval, nor a wait beside it", ErrInvalid)
	}
	a.schedule(t, now)
	if spread := int64(a.backstop) / 2; a.events && spread > 0 && a.checkAt == plus(now, a.backstop) {
		a.checkAt -= rand.Int64N(spread) // spreads the checks of fibers that began to wait together
	}
	return nil
}

// limitBackstop lowers the backstop interval to that of wait. d is the default interval.
func (a *awaiting) limitBackstop(d time.Duration, wait Wait) {
	if b, ok := wait.(Backstopped); ok {
		d = b.Backstop()
	}
	if d > 0 && (a.backstop == 0 || d < a.backstop) {
		_, only := wait.(polled)
		a.backstop, a.events = d, !only
	}
}

// schedule sets the time of the next live check: after the backstop interval, or at the first Until if that is earlier.
func (a *awaiting) schedule(t *timeline, now int64) {
	a.checkAt = 0
	if a.backstop > 0 {
		a.checkAt = plus(now, a.backstop)
	}
	for _, w := range a.waits {
		if u, ok := w.wait.(until); ok {
			if holds := t.since(time.Time(u)); holds > now {
				a.checkAt = earlier(a.checkAt, holds)
			}
		}
	}
}

// due reports whether a live check is due, and whether the await has timed out.
func (a *awaiting) due(now int64) (check, timedOut bool) {
	return a.checkAt > 0 && now >= a.checkAt, a.timeoutAt > 0 && now >= a.timeoutAt
}

// check checks the waits of f in order. done reports that the await is over: held holds, or a wait has failed.
func (a *awaiting) check(ctx context.Context, t *timeline, live bool, f *fiber) (held Wait, done bool, err error) {
	for i := range a.waits {
		w := a.waits[i].wait
		ok := false
		err := guard(f, func() (err error) {
			if u, is := w.(until); is {
				ok = t.now() >= t.since(time.Time(u))
				return nil
			}
			ok, err = w.Check(ctx, live)
			return err
		})
		if err != nil || ok {
			return w, true, err
		}
	}
	return nil, false, nil
}

// stop stops the watches of f, and logs panics.
func (a *awaiting) stop(f *fiber, log *slog.Logger) {
	for _, w := range a.waits {
		if w.stop == nil {
			continue
		}
		if err := guard(f, func() error { w.stop(); return nil }); err != nil {
			logPanic(log, f, err)
		}
	}
}
