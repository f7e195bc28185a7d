package operations

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/why"
)

// Trouble is a cause for which an operation is stuck from the time From on, unless its object changes before. A zero
// From means that the operation is stuck now and at any later time.
type Trouble = causes.Trouble

// Troubles returns the causes for which the object of an operation is or will be stuck, in order. The first cause whose
// From has passed applies. Unlike the answer of [Why], the result stays valid as long as the object does not change.
// Troubles returns nil for an ended operation. now is the present time. op is not changed.
func Troubles(op *v1alpha1.Operation, now time.Time) []Trouble {
	return causes.Troubles(op, causes.Known{}, now)
}

// Why explains from the object why an operation makes no progress, the most direct cause first. For an ended operation
// the cause is [why.Ended] with its reason. now is the present time. Why reads only the object, so every replica and
// every client gets the same answer. The executor that runs the operation knows more: see executor.Executor.Why. op is
// not changed.
func Why(op *v1alpha1.Operation, now time.Time) []why.Cause {
	all := causes.Of(op, causes.Known{}, now)
	if len(all) == 0 {
		all = append(all, causes.Next(op, now))
	}
	all = append(all, causes.Led(op)...)
	return why.NewAnswer(*causes.OperationObject(op.Namespace, op.Name), all).Causes
}
