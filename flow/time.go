package flow

import (
	"math"
	"time"
)

// timeSource is the clock of an engine. The default is the system clock, which testing/synctest fakes. Now must not go
// back. The engine calls both methods with a lock held: they must not block or call the engine. AfterFunc must not call
// f before it returns.
type timeSource interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stop is called first. stop reports whether it prevented
	// the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// timeline is the time of an engine, in nanoseconds since an origin. It does not change, so it needs no lock.
type timeline struct {
	clock  timeSource
	origin time.Time
}

// epochBefore is how far the origin of the engine's time lies before its creation. Times, including saved ones, are
// thus positive, and 0 can mean no time.
const epochBefore = 50 * 365 * 24 * time.Hour

func newTimeline(clock timeSource) timeline {
	return timeline{clock: clock, origin: clock.Now().Add(-epochBefore)}
}

func (t *timeline) now() int64 {
	if t.clock == (systemClock{}) {
		return int64(time.Since(t.origin))
	}
	return int64(t.clock.Now().Sub(t.origin))
}

// wall converts the engine's time to wall-clock time. since is the inverse.
func (t *timeline) wall(at int64) time.Time { return t.origin.Add(time.Duration(at)) }

func (t *timeline) since(wall time.Time) int64 { return max(1, int64(wall.Sub(t.origin))) }

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
