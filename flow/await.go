package flow

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// The functions of this file are for the worker that runs the fiber. They begin, check and end its awaits and
// suspensions, of which there is one at a time. An await is in f.park. f.seq is its number.

// watchWaits starts watching the waits of an await. backstop is the default interval of live checks. After an error no
// wait is watched. A panic of a wait is returned as a *PanicError.
func watchWaits(f *fiber, waits []Wait, backstop time.Duration, now int64, log *slog.Logger) (err error) {
	p := f.park
	f.e.mu.Lock()
	f.seq++
	f.poke &^= pokeEvent
	w := Waker{f, f.seq}
	f.e.mu.Unlock()
	p.waits = make([]waiting, 0, len(waits))
	defer func() {
		if err != nil {
			dropWaits(f, log)
		}
	}()
	blind := 0 // waits that are checked only when another wait wakes
	for _, wait := range waits {
		switch t := wait.(type) {
		case nil:
			return fmt.Errorf("%w: cannot await: wait is nil", ErrInvalid)
		case timeout:
			p.timeoutAt = earlier(p.timeoutAt, plus(now, time.Duration(t)))
			continue
		case until:
		case polled:
			if t.check == nil {
				return fmt.Errorf("%w: cannot await: Func has no function", ErrInvalid)
			}
			if p.limitBackstop(backstop, wait); t.interval <= 0 {
				blind++
			}
		default:
			p.limitBackstop(backstop, wait)
		}
		var stop func()
		if err := guard(f, func() error { stop = wait.Watch(w); return nil }); err != nil {
			return err
		}
		p.waits = append(p.waits, waiting{wait, stop})
	}
	if blind > 0 && blind == len(waits) {
		return fmt.Errorf("%w: cannot await: Func has no interval, nor a wait beside it", ErrInvalid)
	}
	p.checkAt = p.nextCheck(&f.e.time, now)
	if spread := int64(p.backstop) / 2; p.events && spread > 0 && p.checkAt == plus(now, p.backstop) {
		p.checkAt -= rand.Int64N(spread) // spreads the checks of fibers that began to wait together
	}
	return nil
}

// limitBackstop lowers the backstop interval of p to that of wait. d is the default interval.
func (p *parking) limitBackstop(d time.Duration, wait Wait) {
	if b, ok := wait.(Backstopped); ok {
		d = b.Backstop()
	}
	if d > 0 && (p.backstop == 0 || d < p.backstop) {
		_, only := wait.(polled)
		p.backstop, p.events = d, !only
	}
}

// nextCheck returns the time of the next live check: after the backstop interval, or at the first Until if that is
// earlier.
func (p *parking) nextCheck(t *timeline, now int64) int64 {
	at := int64(0)
	if p.backstop > 0 {
		at = plus(now, p.backstop)
	}
	for _, w := range p.waits {
		if u, ok := w.wait.(until); ok {
			if holds := t.since(time.Time(u)); holds > now {
				at = earlier(at, holds)
			}
		}
	}
	return at
}

// checkWaits checks the waits in order. done reports that the await is over; the waits are then dropped. A panic of a
// wait is returned as a *PanicError.
func checkWaits(ctx context.Context, f *fiber, live bool, log *slog.Logger) (done bool, err error) {
	p := f.park
	for i := range p.waits {
		w := p.waits[i].wait
		var ok bool
		err := guard(f, func() (err error) {
			if t, is := w.(until); is {
				ok = f.e.time.now() >= f.e.time.since(time.Time(t))
				return nil
			}
			ok, err = w.Check(ctx, live)
			return err
		})
		if err == nil && !ok {
			continue
		}
		many := len(p.waits) > 1
		dropWaits(f, log)
		if err == nil && many {
			setValue(f, w)
		}
		return true, err
	}
	return false, nil
}

// setValue sets the result of Value to v.
func setValue(f *fiber, v any) {
	x := f.ext()
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	x.value = v
}

// forgetEvents clears pending events before the waits are checked.
func forgetEvents(f *fiber) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.poke &^= pokeEvent
}

// dropWaits stops the watches of an await.
func dropWaits(f *fiber, log *slog.Logger) {
	p := f.park
	if p == nil || p.waits == nil {
		return
	}
	f.park = nil
	f.e.mu.Lock()
	f.seq++ // makes the wakers of this await stale
	f.poke &^= pokeEvent
	f.e.mu.Unlock()
	for _, w := range p.waits {
		if w.stop == nil {
			continue
		}
		if err := guard(f, func() error { w.stop(); return nil }); err != nil {
			logPanic(log, f, err)
		}
	}
}

// newToken returns the token of the next suspension of f. It makes older tokens of f stale.
func newToken(f *fiber) Token {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeToken
	f.tokens = true
	return Token{f, f.seq}
}

// dropToken makes a token stale that the step did not suspend on.
func dropToken(f *fiber) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeToken
	f.tokens = false
}

// useToken reports whether the step that has just run may suspend on t, and whether t has been resumed already.
func useToken(f *fiber, t Token) (fresh, early bool) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	early = f.poke&pokeToken != 0 && f.x.Load().tokenSeq == t.seq
	fresh = t.f == f && f.tokens && (t.seq == f.seq || early)
	f.tokens = false
	return fresh, early
}

// endSuspension returns the outcome of the suspension: the error of Token.Fail, nil after Token.Resume, or errDeadline
// if neither was called in time. The token is then stale.
func endSuspension(f *fiber, poke pokes) error {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	resumed := (poke|f.poke)&pokeToken != 0
	f.poke &^= pokeToken
	if !resumed {
		f.seq++
		return errDeadline
	}
	return f.x.Load().resumeErr
}
