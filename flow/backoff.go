package flow

import (
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// Backoff says how long to wait before attempt n: Base, doubled for each attempt up to Max, with jitter between half of it and
// all of it, but never less than Base nor more than Max. The zero value is 400 ms doubling to 10 s, without end.
type Backoff struct {
	Base     time.Duration // default 400 ms
	Max      time.Duration // default 10 s, at least Base
	Attempts int           // runs in all before giving up; 0 never gives up
}

// Delay returns the wait after attempt runs have failed; attempt starts at 1. It does not overflow, whatever attempt is.
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

// exhausted says whether no further attempt is due after attempt runs.
func (b Backoff) exhausted(attempt int) bool { return b.Attempts > 0 && attempt >= b.Attempts }
