package source

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// agenda says whether a scope lists before its next watch, and how. It keeps the history of faults that leads to a list
// or a wait. The goroutine of the scope owns it; it has no lock.
type agenda struct {
	relist     bool // list before the next watch
	verify     bool // list, but continue to watch if the list is unreadable, too
	consistent bool // the next list must be consistent
	history    history
}

// mustList reports whether the scope may not watch before it has listed everything.
func (a *agenda) mustList() bool { return a.relist }

// isListDue reports whether a list of everything comes before the next watch.
func (a *agenda) isListDue() bool { return a.relist || a.verify }

// isConsistent reports whether the next list must be consistent.
func (a *agenda) isConsistent() bool { return a.consistent }

// reason returns the reason for the next list.
func (a *agenda) reason() Reason { return a.history.reason }

// requireList demands a list of everything before the next watch.
func (a *agenda) requireList() { a.relist = true }

// requireConsistentList demands a consistent list of everything before the next watch.
func (a *agenda) requireConsistentList() { a.relist, a.consistent = true, true }

// verifyContent demands a list before the next watch, unless it is unreadable, too.
func (a *agenda) verifyContent() { a.verify = true }

// startOver demands a consistent list, and forgets all faults.
func (a *agenda) startOver() { *a = agenda{relist: true, consistent: true} }

// listed records a list of everything.
func (a *agenda) listed() {
	a.relist, a.consistent, a.verify = false, false, false
	a.history.atVersion = 0
}

// unverified records that the list for verifyContent was unreadable. It is not repeated.
func (a *agenda) unverified() { a.verify = false }

// watchProgressed records that a watch delivered an event.
func (a *agenda) watchProgressed() { a.history.progress() }

// watchStayedOpen records that a watch stayed open for a while.
func (a *agenda) watchStayedOpen() { a.history.stayedOpen() }

// needsProbe counts the end of a watch. It reports whether a probe must explain why watches at this version fail.
func (a *agenda) needsProbe(err error, version []byte) bool {
	return a.history.isStuck(err, version) && !a.relist
}

// probed records that the server works although watches at one version fail. A list moves the scope to another version.
func (a *agenda) probed() {
	a.history.stuck = 0
	a.relist = true
}

// repair records the end of an attempt. It returns the remedy, and the time to wait before the next attempt.
func (a *agenda) repair(err error, delays backoff.Policy, random func() float64) (r remedy, wait time.Duration) {
	r = remedyFor(err, &a.history)
	if r.relist {
		a.relist = true
		a.history.reason = r.reason
	}
	a.consistent = a.consistent || r.consistent
	if r.wait {
		wait = delays.Delay(a.history.failures, random)
		a.history.failures++
		if r.shortWait {
			wait = min(wait, maxShortWait)
		}
	}
	if r.retryAfter > 0 {
		wait = min(r.retryAfter, maxRetryAfter) + wait/8 // jitter spreads the retries of many clients
	}
	return r, wait
}
