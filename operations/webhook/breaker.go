package webhook

import (
	"math/rand/v2"
	"time"
)

// BreakerState says whether calls pass.
type BreakerState string

// The states of a breaker.
const (
	Closed   BreakerState = "Closed"   // calls pass
	Open     BreakerState = "Open"     // no calls pass
	HalfOpen BreakerState = "HalfOpen" // one call passes and decides the next state
)

// BreakerStatus is the state of an endpoint's breaker.
type BreakerStatus struct {
	State    BreakerState
	Until    time.Time // Open: the earliest time of the next call; else zero
	Failures int       // consecutive
}

// breaker counts consecutive failures. Its owner locks it.
type breaker struct {
	status  BreakerStatus
	probing bool // HalfOpen: the deciding call is in progress
	opened  int  // number of times
}

// pass is the permission for one call.
type pass struct {
	probe  bool // the call decides the next state
	opened int  // breaker.opened when the call started
}

// wait returns how long no call may pass. 0 means that a call may pass now.
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

// jitter spreads callers that wait for the same moment.
func jitter(openFor time.Duration) time.Duration {
	return rand.N(max(openFor/10, 1))
}

// pass records that a call passes.
func (b *breaker) pass() pass {
	if b.status.State == Closed {
		return pass{opened: b.opened}
	}
	b.status.State, b.status.Until, b.probing = HalfOpen, time.Time{}, true
	return pass{probe: true, opened: b.opened}
}

// done records the outcome of a call. It ignores calls that passed before the breaker last opened, even if it has
// closed since.
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

// outcome is the evidence of a call about the health of its endpoint.
type outcome int

const (
	outcomeNone outcome = iota // not reached, for a local reason
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
