package reconcile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// failure summarizes the failed attempts at an object. While there is one, an event alone does not start the next
// attempt.
type failure struct {
	facts     facts
	attempts  int
	conflicts int
	class     Class
	err       error
	since     time.Time
	at        time.Time
}

// stopped reports whether an event for the given reason starts no attempt until the spec changes.
func (f *failure) stopped(reason ReasonType) bool {
	return f.class == Stopped && (reason != Interval || !errors.Is(f.err, ErrExhausted))
}

// requeues count the consecutive results of After(0), for one state of the object.
type requeues struct {
	n  int
	of facts
}

// retries decide when an object is reconciled again without an event. They have no state: the history of an object is
// in its failure and its requeues.
type retries struct {
	backoff  Backoff
	custom   func(k Key, failures int) time.Duration // replaces backoff; nil: none
	attempts int                                     // bound for one spec; 0 means none
	random   func() float64                          // nil means rand.Float64
}

func (p *retries) rand() func() float64 {
	if p.random == nil {
		return rand.Float64
	}
	return p.random
}

// delay returns the back-off after failures in a row, the current one not counted.
func (p *retries) delay(k Key, failures int) time.Duration {
	if p.custom == nil {
		return p.backoff.after(failures, p.rand())
	}
	delay, err := guard(func() (time.Duration, error) { return p.custom(k, failures), nil })
	if err != nil { // it panicked
		return p.backoff.after(failures, p.rand())
	}
	return max(delay, minAfter)
}

// failed adds an attempt to the failure f of an object, which may be nil. seen is the state that the attempt has seen.
func (p *retries) failed(f *failure, seen facts, err error, now time.Time) *failure {
	if f == nil || f.facts.differs(seen) {
		f = &failure{since: now}
	}
	f.facts, f.err, f.class, f.at = seen, err, classify(err), now
	f.attempts++
	return f
}

// afterFailure returns the delay before the next attempt, at least atLeast. It returns false, and a failure of class
// Stopped, if there is no next attempt.
func (p *retries) afterFailure(k Key, f *failure, atLeast time.Duration) (delay time.Duration, again bool) {
	if f.class != Stopped && p.attempts > 0 && f.attempts >= p.attempts {
		f.class, f.err = Stopped, fmt.Errorf("%w after %d: %w", ErrExhausted, f.attempts, f.err)
	}
	switch f.class {
	case Stopped:
		return 0, false
	case Conflict:
		f.conflicts++
		return max(conflictBackoff.after(f.conflicts-1, p.rand()), atLeast), true
	}
	return max(p.delay(k, f.attempts-f.conflicts-1), retryAfter(f.err), atLeast), true
}

// afterSuccess returns the delay that a result asks for; 0 means none. seen is the state that was reconciled.
func (p *retries) afterSuccess(k Key, n *requeues, seen facts, res Result) time.Duration {
	if !res.requeue || n.of.differs(seen) {
		n.n = 0
	}
	if !res.requeue {
		return res.after
	}
	delay := p.delay(k, n.n)
	n.n++
	n.of = seen
	return delay
}
