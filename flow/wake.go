package flow

import (
	"context"
	"fmt"
	"time"
)

// Wait is a condition for Await. The engine calls Watch, then Check once, so that a condition that already holds ends
// the wait at once. It calls Check again after each wake, and with live set at each backstop interval. A missed event
// therefore only delays the fiber. Check runs on a worker, without locks, and never within Watch or Wake.
type Wait interface {
	// Watch makes the source call w.Wake whenever the condition may have changed, until the caller calls stop. Wake
	// never blocks and calls no user code. The source may call Wake with locks held, from within Watch, and after stop.
	Watch(w Waker) (stop func())
	// Check reports whether the condition holds. With live set it asks the source of truth instead of a cache. An error
	// ends the wait and fails the step.
	Check(ctx context.Context, live bool) (bool, error)
}

// Backstopped is a Wait with its own interval of live checks. The default is [EngineOptions.Backstop].
type Backstopped interface {
	Wait
	// Backstop returns the interval between live checks. Zero or less disables them. The first live check comes after
	// half of the interval to all of it, to spread fibers that began to wait together.
	Backstop() time.Duration
}

// Waker makes the engine check the waits of one await again. It is comparable, so that a source can keep a set of
// wakers.
type Waker struct {
	f   *fiber
	seq uint32
}

// Wake tells the engine that the condition may have changed. It runs no user code, and may be called at any time from
// any goroutine. It has no effect once the await is over.
func (w Waker) Wake() {
	if w.f == nil {
		return
	}
	e := w.f.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.f.seq != w.seq || w.f.sealed || w.f.poke&pokeEvent != 0 {
		return
	}
	e.sched.poke(w.f, pokeEvent)
}

// Token resumes one suspension. It is comparable and safe for concurrent use. The zero Token resumes no fiber.
type Token struct {
	f   *fiber
	seq uint32
}

// Resume ends the suspension and passes value to Value. It reports whether it ended the suspension. A second or late
// call has no effect and returns false.
func (t Token) Resume(value any) bool { return t.resume(value, nil) }

// Fail ends the suspension with an error, which fails the step. It reports whether it ended the suspension.
func (t Token) Fail(err error) bool {
	if err == nil {
		err = fmt.Errorf("suspension failed without an error")
	}
	return t.resume(nil, err)
}

func (t Token) resume(value any, err error) bool {
	f := t.f
	if f == nil {
		return false
	}
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if f.seq != t.seq || f.sealed || f.progress.cancelled() {
		return false
	}
	f.seq++
	x := f.ext()
	f.value, x.resumeErr, x.tokenSeq = value, err, t.seq
	f.e.sched.pokeIf(f, pokeToken, whySuspend)
	return true
}
