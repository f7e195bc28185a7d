package leasing

import "time"

// Clock is the time source of a process. The zero value is the clock of the machine. Tests use clocks that differ or
// stop.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Stamp returns the present time.
func (c Clock) Stamp() Stamp {
	if c.Now == nil {
		return Stamp{time.Now()}
	}
	return Stamp{c.Now()}
}

func (c Clock) after(d time.Duration) <-chan time.Time {
	if c.After == nil {
		return time.After(d)
	}
	return c.After(d)
}

// Stamp is a time on both clocks of a process, the monotonic one and the wall clock.
type Stamp struct{ time.Time }

// AtMost returns the elapsed time by the clock that says more.
func (s Stamp) AtMost(now time.Time) time.Duration {
	return max(now.Sub(s.Time), now.Round(0).Sub(s.Round(0)))
}

// AtLeast returns the elapsed time by the clock that says less.
func (s Stamp) AtLeast(now time.Time) time.Duration {
	return min(now.Sub(s.Time), now.Round(0).Sub(s.Round(0)))
}
