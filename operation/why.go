package operation

import (
	"time"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation/internal/causes"
	"github.com/fairlead-io/fairlead/why"
)

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
