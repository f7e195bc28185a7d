package flow

import (
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// Backoff is an exponential back-off with jitter. The wait starts at Base and doubles for each attempt, up to Max.
// Jitter subtracts at most half of the wait, but the result stays between Base and Max. The zero value waits 400 ms,
// doubling to 10 s, and never gives up.
type Backoff struct {
	Base     time.Duration // default 400 ms
	Max      time.Duration // default 10 s, at least Base
	Attempts int           // total number of runs before giving up; 0 never gives up
}

// Delay returns the wait after attempt failed runs. attempt starts at 1. Delay does not overflow for any attempt.
func (b Backoff) Delay(attempt int) time.Duration {
	p := backoff.Policy{Base: b.Base, Cap: b.Max, Factor: 2, Equal: true}
	if p.Base <= 0 {
		p.Base = 400 * time.Millisecond
	}
	if p.Cap <= 0 {
		p.Cap = 10 * time.Second
	}
	p.Floor, p.Cap = p.Base, max(p.Base, p.Cap)
	return p.Delay(max(attempt, 1)-1, rand.Float64)
}

// exhausted reports whether attempt runs were the last ones allowed.
func (b Backoff) exhausted(attempt int) bool { return b.Attempts > 0 && attempt >= b.Attempts }
