package flow

import (
	"math"
	"time"
)

// never is the largest value of the engine's time.
const never = math.MaxInt64

// plus returns t+d without overflow. The result is at least 1, because 0 means no time.
func plus(t int64, d time.Duration) int64 {
	if d > 0 && t > never-int64(d) {
		return never
	}
	return max(1, t+int64(d))
}

// earlier returns the earlier of two times. 0 means no time.
func earlier(a, b int64) int64 {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}

// epochBefore is how far the origin of the engine's time lies before its creation. Times, including saved ones, are
// thus positive, and 0 can mean no time.
const epochBefore = 50 * 365 * 24 * time.Hour

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
