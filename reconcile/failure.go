package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// Failure is an object whose last reconciliation failed.
type Failure struct {
	Controller string
	Key        Key
	Class      Class
	Err        error // *Error
	Attempts   int   // since the last success, or the last change of the spec
	Since      time.Time
	At         time.Time // of the last attempt
	Next       time.Time // of the next attempt; zero if nothing is tried until the spec changes, or a fiber is at work
}

func (f *failure) public(controller string, it *item) *Failure {
	out := &Failure{
		Controller: controller, Key: it.key, Class: f.class, Attempts: f.attempts, Since: f.since, At: f.at,
		Err: &Error{Controller: controller, Key: it.key, Err: f.err},
	}
	if it.state == waiting {
		out.Next = it.due
	}
	return out
}

// Failures returns the objects whose last reconciliation failed, those that failed first first.
func (c *Controller) Failures() []Failure {
	c.mu.Lock()
	var out []Failure
	for _, it := range c.q.items {
		if it.fail != nil {
			out = append(out, *it.fail.public(c.name, it))
		}
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return out
}

// report logs a failure and tells the user.
func (c *Controller) report(f Failure) {
	level := slog.LevelError
	if f.Class == Conflict {
		level = slog.LevelInfo
	}
	args := []any{"key", f.Key.String(), "class", f.Class, "attempts", f.Attempts, "next", f.Next, "error", f.Err}
	if p, ok := asPanic(f.Err); ok {
		args = append(args, "stack", string(p.Stack))
	}
	c.log.Log(context.Background(), level, "reconciliation failed", args...)
	if c.set.onFailure == nil {
		return
	}
	var err error
	func() {
		defer recovered(&err)
		c.set.onFailure(f)
	}()
	if err != nil {
		c.log.Error("OnFailure panicked", "error", err)
	}
}

func (c *Controller) rand() func() float64 { return rand.Float64 }
