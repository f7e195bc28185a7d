package flow

import "fmt"

// Token resumes one suspension. It is comparable and safe for concurrent use. The zero Token resumes no fiber.
type Token struct {
	f   *fiber
	seq uint32
}

// Token returns a token for the suspension that this step is about to return. Other code may resume the token before
// the step returns. The token becomes stale if the step does not suspend on it, or calls Token again.
func (f *fiber) Token() Token {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeToken
	f.tokens = true
	return Token{f, f.seq}
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
	x.value, x.resumeErr, x.tokenSeq = value, err, t.seq
	f.poke |= pokeToken
	if f.state == Parked && f.why == whySuspend {
		f.e.makeReady(f)
	}
	return true
}

// dropToken makes a token stale that the step did not suspend on.
func (f *fiber) dropToken() {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeToken
	f.tokens = false
}

// useToken reports whether the step that has just run may suspend on t, and whether t has been resumed already.
func (f *fiber) useToken(t Token) (fresh, early bool) {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	early = f.poke&pokeToken != 0 && f.x.Load().tokenSeq == t.seq
	fresh = t.f == f && f.tokens && (t.seq == f.seq || early)
	f.tokens = false
	return fresh, early
}

// endSuspension returns the outcome of the suspension: the error of Token.Fail, nil after Token.Resume, or errDeadline
// if neither was called in time. The token is then stale.
func (f *fiber) endSuspension(poke pokes) error {
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
