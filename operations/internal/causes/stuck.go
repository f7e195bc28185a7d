package causes

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// wait is what decides whether an operation in progress is stuck by one of its causes.
type wait struct {
	// failed says that the last try has failed, and that nothing has come of the call since.
	failed bool
	// bound is the end of the wait as it was declared: by the timeout of a try, the interval of polls, the timeout of a
	// callback, or a Retry-After. The zero time: nothing declares an end.
	bound time.Time
}

// stuckFrom returns from when on the wait makes its operation stuck. This is the definition of stuck: an operation in
// progress is stuck if its last try has failed, or if its wait has passed its bound or has none, until it makes
// progress. One that waits within its bound is not stuck.
func (w wait) stuckFrom() time.Time {
	if w.failed {
		return time.Time{}
	}
	return w.bound
}

// told is a cause together with what decides whether its operation is stuck by it.
type told struct {
	why.Cause
	wait
}

// at returns the cause as it is at a moment.
func (t told) at(now time.Time) why.Cause {
	if t.Progress = now.Before(t.stuckFrom()); !t.Progress && t.Advice == "" {
		t.Advice = "It lasts longer than it may: see whether fairlead controller runs for its namespace, and what it logs."
	}
	return t.Cause
}

// Trouble is a cause for which an operation is stuck from a moment on, unless its object changes before.
type Trouble struct {
	Cause why.Type
	From  time.Time // zero: it always is
}

// Troubles returns what the object of an operation says of its being stuck, the first cause first; nothing for one that
// has ended. The causes are those of [Of] and, where it has none, of [Next], with the moment at which each ends being
// progress. op is not changed.
func Troubles(op *v1alpha1.Operation, known Known, now time.Time) []Trouble {
	if op.Terminal() {
		return nil
	}
	all := inProgress(op, known, now)
	if len(all) == 0 {
		all = append(all, next(op))
	}
	if late, counts := deadline(op); counts && now.Before(late.Since) { // else it is among them
		all = append(all, told{late.Cause, wait{bound: late.bound}})
	}
	untimed := make([]why.Cause, len(all))
	for i, t := range all {
		untimed[i] = why.Cause{Type: t.Type, Message: t.Message, Until: t.stuckFrom()}
	}
	var troubles []Trouble
	for _, c := range why.NewAnswer(why.Object{}, untimed).Causes { // in their order
		troubles = append(troubles, Trouble{c.Type, c.Until})
	}
	return troubles
}

// Stuck returns the type of the first of the causes of an operation in progress that is no progress; false if there is
// none, so that the operation is not stuck.
func Stuck(all []why.Cause) (why.Type, bool) {
	for _, c := range why.NewAnswer(why.Object{}, all).Causes {
		if c.Type != why.Ended && !c.Progress {
			return c.Type, true
		}
	}
	return "", false
}
