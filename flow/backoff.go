package flow

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before attempt n: Base, doubled for each attempt up to Max, with jitter between half of
// it and all of it, but never less than Base nor more than Max. The zero value is 400 ms doubling to 10 s, without end.
type Backoff struct {
	Base     time.Duration // default 400 ms
	Max      time.Duration // default 10 s, at least Base
	Attempts int           // runs in all before giving up; 0 never gives up
}

// Delay returns the wait after attempt runs have failed; attempt starts at 1. It does not overflow, whatever attempt
// is.
func (b Backoff) Delay(attempt int) time.Duration {
	base, limit := b.Base, b.Max
	if base <= 0 {
		base = 400 * time.Millisecond
	}
	if limit <= 0 {
		limit = 10 * time.Second
	}
	if limit <= base {
		return base
	}
	d := base
	for i := 1; i < attempt && d < limit; i++ {
		if d > limit/2 {
			d = limit
			break
		}
		d *= 2
	}
	if half := d / 2; half > 0 {
		d = half + rand.N(half+1)
	}
	return max(base, d)
}

// exhausted says whether no further attempt is due after attempt runs.
func (b Backoff) exhausted(attempt int) bool { return b.Attempts > 0 && attempt >= b.Attempts }
