package reconcile

import "time"

// rate allows at most n starts in any period of length per. The zero value and nil allow any number. It has no lock and
// no clock.
type rate struct {
	n      int
	per    time.Duration
	starts []time.Time // times of the last n starts, a ring once it is full
	oldest int
}

// nextStart returns when the next start is allowed; a time not after now means at once.
func (r *rate) nextStart() time.Time {
	if !r.limits() || len(r.starts) < r.n {
		return time.Time{}
	}
	return r.starts[r.oldest].Add(r.per)
}

func (r *rate) limits() bool { return r != nil && r.n > 0 && r.per > 0 }

// recent reports whether a start still counts against the limit.
func (r *rate) recent(now time.Time) bool {
	if !r.limits() || len(r.starts) == 0 {
		return false
	}
	last := r.starts[(r.oldest+len(r.starts)-1)%len(r.starts)]
	return now.Sub(last) < r.per
}

// record records a start.
func (r *rate) record(now time.Time) {
	switch {
	case !r.limits():
	case len(r.starts) < r.n:
		r.starts = append(r.starts, now)
	default:
		r.starts[r.oldest] = now
		r.oldest = (r.oldest + 1) % r.n
	}
}
