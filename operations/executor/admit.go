package executor

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// withdraw removes the calls that unwanted selects from the queues in which the run waits.
func (e *Executor) withdraw(r *run, unwanted func(record.Target) bool) {
	for t, refusal := range r.refused {
		if !unwanted(t) {
			continue
		}
		e.calls.withdraw(r.party(), queued{&r.news, t}, refusal.call)
		delete(r.refused, t)
	}
}

// unwanted returns a function that selects the calls of an operation that are not made, or not made now. A slot that
// is kept for such a call would be lost to all others.
func unwanted(op *v1alpha1.Operation, find course.Lookup) func(record.Target) bool {
	decided := meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError)
	return func(t record.Target) bool {
		_, exists := find(t.ID)
		en := record.Entry(&op.Status, t)
		return !exists || decided && t.Purpose == record.Main || en != nil && en.State.Terminal()
	}
}

func allOf(record.Target) bool { return true }
