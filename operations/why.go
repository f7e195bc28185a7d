package operations

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/why"
)

// Trouble is a cause for which an operation is stuck from the moment From on, unless its object changes before; From is
// zero where it is stuck whenever that is asked.
type Trouble = causes.Trouble

// Troubles returns what the object of an operation tells of its being stuck, the first cause first: the operation is
// stuck by the first one whose moment has come. It returns nothing for one that has ended. now is the present time. It
// is the answer of [Why] in a form that stays right while the object does not change. op is not changed.
func Troubles(op *v1alpha1.Operation, now time.Time) []Trouble {
	return causes.Troubles(op, causes.Known{}, now)
}

// Why says why an operation does not move on, from what the object tells, the most direct cause first: [why.Ended] for
// one that has ended, with its reason. now is the present time. It needs nothing but the object, so every replica and
// every client gets the same; the executor that works on the operation knows more (executor.Executor.Why). op is not
// changed.
func Why(op *v1alpha1.Operation, now time.Time) []why.Cause {
	all := causes.Of(op, causes.Known{}, now)
	if len(all) == 0 {
		all = append(all, causes.Next(op, now))
	}
	all = append(all, causes.Led(op)...)
	return why.NewAnswer(*causes.OperationObject(op.Namespace, op.Name), all).Causes
}
