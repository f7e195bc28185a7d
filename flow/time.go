package flow

import (
	"math"
	"time"
)

// never is the end of the engine's time.
const never = math.MaxInt64

// plus is a time so much later, which does not run over; one that would be before the engine's time is its beginning, since 0
// stands for none.
func plus(t int64, d time.Duration) int64 {
	if d > 0 && t > never-int64(d) {
		return never
	}
	return max(1, t+int64(d))
}

// earlier is the earlier one of two times, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// epochBefore is how long before its making the engine's time starts, so that every time it meets, also a saved one, is positive:
// 0 stands for none.
const epochBefore = 50 * 365 * 24 * time.Hour

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
