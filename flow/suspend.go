package flow

import "log/slog"

// The functions of this file are for the worker that runs the fiber. f.seq is the number of its current suspension or
// await, of which there is one at a time. A token or a waker with another number is stale.

// newWaker returns the waker of the next await of f.
func newWaker(f *fiber) Waker {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeEvent
	return Waker{f, f.seq}
}

// dropAwait ends the await of f, if there is one. Its wakers are then stale.
func dropAwait(f *fiber, log *slog.Logger) {
	p := f.park
	if p == nil || p.waits == nil {
		return
	}
	f.park = nil
	f.e.mu.Lock()
	f.seq++
	f.poke &^= pokeEvent
	f.e.mu.Unlock()
	p.stop(f, log)
}

// forgetEvents clears pending events before the waits are checked.
func forgetEvents(f *fiber) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.poke &^= pokeEvent
}

// setValue sets the result of Value to v.
func setValue(f *fiber, v any) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.value = v
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
