package webhook

import (
	"math/rand/v2"
	"time"
)

// BreakerState says whether calls go through.
type BreakerState string

// The states.
const (
	Closed   BreakerState = "Closed"   // calls go through
	Open     BreakerState = "Open"     // none does
	HalfOpen BreakerState = "HalfOpen" // one does, and decides
)

// BreakerStatus is the state of an endpoint's breaker.
type BreakerStatus struct {
	State    BreakerState
	Until    time.Time // Open: when the next call may try; else zero
	Failures int       // in a row
}

// breaker counts failures in a row. Its owner locks.
type breaker struct {
	status  BreakerStatus
	probing bool // HalfOpen: the one call is under way
	opened  int  // how often
}

// pass is the leave of one call.
type pass struct {
	probe  bool // it decides
	opened int  // how often the breaker had opened before
}

func newBreaker() breaker { return breaker{status: BreakerStatus{State: Closed}} }

// wait is how long no call may pass; 0: one may pass now.
func (b *breaker) wait(now time.Time, openFor time.Duration) time.Duration {
	switch b.status.State {
	case Open:
		if left := b.status.Until.Sub(now); left > 0 {
			return left + jitter(openFor)
		}
	case HalfOpen:
		if b.probing {
			return min(openFor, time.Second) + jitter(openFor)
		}
	}
	return 0
}

// jitter spreads those who wait for the same moment.
func jitter(openFor time.Duration) time.Duration {
	return rand.N(max(openFor/10, 1))
}

// pass notes that a call goes through.
func (b *breaker) pass() pass {
	if b.status.State == Closed {
		return pass{opened: b.opened}
	}
	b.status.State, b.status.Until, b.probing = HalfOpen, time.Time{}, true
	return pass{probe: true, opened: b.opened}
}

// done notes how a call ended. Calls that passed before the breaker opened no longer count, also when it has closed
// again.
func (b *breaker) done(p pass, outcome outcome, now time.Time, limits Breaker) {
	if p.opened != b.opened {
		return
	}
	b.probing = b.probing && !p.probe
	switch outcome {
	case outcomeGood:
		b.status = BreakerStatus{State: Closed}
	case outcomeBad:
		b.status.Failures++
		if p.probe || b.status.Failures >= limits.Failures {
			b.status.State, b.status.Until = Open, now.Add(limits.OpenFor)
			b.opened++
		}
	}
}

// outcome is what a call tells of the health of its endpoint.
type outcome int

const (
	outcomeNone outcome = iota // it was not reached, for a reason of ours
	outcomeGood
	outcomeBad
)

func outcomeOf(r Result) outcome {
	switch {
	case r.Verdict == Canceled || r.Verdict == Invalid || r.Verdict == Refused || r.noRequest():
		return outcomeNone
	case r.StatusCode == 0 || r.StatusCode >= 500:
		return outcomeBad
	}
	return outcomeGood
}
