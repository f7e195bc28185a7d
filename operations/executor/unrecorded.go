package executor

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Unrecorded calls. The object that the API server has accepted, with its operationID, is a durable record that its
// first call is about to be made (O2), if who goes on after a crash would do the same. Then the call is made without a
// write before it, and its outcome is the only one. That is so for the first try of the first Webhook of an operation
//
//   - that is sequential, locks nothing and compensates nothing, and whose Webhook is synchronous: nothing of what
//     comes later depends on the try having been recorded (course.Ordinary);
//   - with an operationID of its own: the API server keeps the request from being replaced until it has ended;
//   - in whose namespace no unfinished operation locks anything. Its place is the version at which it was accepted
//     (acceptance.go), so that a lock that comes later waits for it;
//   - of which the executor knows a state that is no older than its own beginning: a predecessor has not ended it;
//   - that can be recorded afterwards: the last write of a status in its namespace has not failed, but by a conflict or
//     a deletion, the API server has kept the keys of the calls of such a write since this executor was made, and the
//     object is small.
//
// The id of that attempt is derived from the operation, so it is the same after a crash; the key is, too. It is so
// whether or not the call was recorded first, since whoever goes on cannot know that.
//
// Until it is written, the record is among the unsaved changes of the run. It is written when the call takes longer
// than recordAfter, and with the outcome otherwise; the run is the only writer of both. So what looks at the status of
// the run, a cancellation for one, finds the call recorded, and what looks at the API server finds an operation that
// was not picked up yet.

// recordAfter is how long a call may take without being recorded.
const recordAfter = 500 * time.Millisecond

// needsNoRecord tells whether the calls that are due may be made before they are recorded.
func (e *Executor) needsNoRecord(r *run, due []record.Target, hooks map[record.Target]*webhook.Compiled) bool {
	if len(due) != 1 || !r.alone || !r.confirmed || r.thin > course.Whole || r.op.Spec.OperationID == "" {
		return false
	}
	if !course.Ordinary(r.op) || !course.FirstTry(r.op, due[0]) {
		return false
	}
	hook := hooks[due[0]]
	return hook != nil && hook.Definition().Mode == webhook.Sync && course.Light(r.op) && e.trust.in(r.key.Namespace)
}

// recordDue returns when the calls under way have to be recorded, the zero time if now or none has to.
func (r *run) recordDue(now time.Time) time.Time {
	if r.unrecorded.IsZero() || len(r.flying) == 0 {
		return time.Time{}
	}
	if due := r.unrecorded.Add(recordAfter); now.Before(due) {
		return due
	}
	return time.Time{}
}
