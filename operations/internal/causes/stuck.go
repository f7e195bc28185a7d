package causes

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// wait determines whether a cause makes an operation in progress stuck.
type wait struct {
	// failed means that the last try has failed, and that the call has made no progress since.
	failed bool
	// bound is the declared end of the wait: by the timeout of a try, the poll interval, the timeout of a callback, or
	// a Retry-After. Zero means that there is no declared end.
	bound time.Time
}

// stuckFrom returns the time from which the wait makes its operation stuck. This is the definition of stuck: an
// operation in progress is stuck if its last try has failed, or if its wait has passed its bound or has none, until it
// makes progress. An operation that waits within its bound is not stuck.
func (w wait) stuckFrom() time.Time {
	if w.failed {
		return time.Time{}
	}
	return w.bound
}

// told is a cause with its wait.
type told struct {
	why.Cause
	wait
}

// at returns the cause at the given time.
func (t told) at(now time.Time) why.Cause {
	if t.Progress = now.Before(t.stuckFrom()); !t.Progress && t.Advice == "" {
		t.Advice = "It takes longer than it should. Check that fairlead controller is running for its namespace, and check " +
			"its log."
	}
	return t.Cause
}

// Trouble is a cause for which an operation is stuck from a time on, unless its object changes before.
type Trouble struct {
	Cause why.Type
	From  time.Time // zero: at any time
}

// Troubles returns the causes for which an operation is or will be stuck, in order, or nil for an ended operation. The
// causes are those of [Of], or of [Next] if it has none. Each has the time at which it stops being progress. op is not
// changed.
func Troubles(op *v1alpha1.Operation, known Known, now time.Time) []Trouble {
	if op.Terminal() {
		return nil
	}
	all := inProgress(op, known, now)
	if len(all) == 0 {
		all = append(all, next(op))
	}
	if late, counts := deadline(op); counts && now.Before(late.Since) { // otherwise all contains it
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

// Stuck returns the type of the first cause that is not progress. It returns false if there is none, so that the
// operation is not stuck.
func Stuck(all []why.Cause) (why.Type, bool) {
	for _, c := range why.NewAnswer(why.Object{}, all).Causes {
		if c.Type != why.Ended && !c.Progress {
			return c.Type, true
		}
	}
	return "", false
}
