package executor

import (
	"time"

	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Unrecorded calls. The object that the API server has accepted, with its operationID, can be the durable record that
// its first call is about to be made (O2). It is if a successor would make the same call after a crash. Then the call
// is made without a write before it, and the only write is its outcome. This applies to the first try of the first
// Webhook of an operation under these conditions:
//
//   - The operation is sequential, locks no resource and has no compensations (course.Ordinary), and the Webhook does
//     not call back. So nothing but the answer depends on a record of the try: it has the outcome, or the URL to poll.
//   - It has an operationID of its own. The API server rejects a replacement of the request until it has ended.
//   - No unfinished operation in its namespace holds a lock. The place of the operation is the version at which it
//     was accepted (acceptance.go), so a later lock waits for it.
//   - The executor knows a state at least as new as its own start, so no predecessor has ended the operation.
//   - The call can be recorded afterwards. The last status write in the namespace has not failed, except by a
//     conflict or a deletion. A write of this executor has shown that the API server stores the keys of calls. The
//     object is small.
//
// The id and key of that attempt are derived from the operation, so they are the same after a crash. They are the
// same if the call is recorded first, since a successor cannot know whether it was.
//
// Until it is written, the record is one of the unsaved changes of the run. It is written when the call takes longer
// than recordAfter, else with the outcome. The run is the only writer of both. So code that reads the status of the
// run, such as a cancellation, finds the call recorded. Readers of the API server find an operation that is not
// picked up yet.

// recordAfter is how long a call may be under way without a record.
const recordAfter = 500 * time.Millisecond

// needsNoRecord reports whether the due calls may be made before they are recorded. trusted reports whether calls of a
// namespace can be recorded afterwards.
func (r *run) needsNoRecord(
	due []record.Target, hooks map[record.Target]*webhook.Compiled, trusted func(namespace string) bool,
) bool {
	if len(due) != 1 || !r.alone || !r.confirmed || r.thin > course.Whole || r.op.Spec.OperationID == "" {
		return false
	}
	if !course.Ordinary(r.op) || !course.FirstTry(r.op, due[0]) {
		return false
	}
	hook := hooks[due[0]]
	return hook != nil && hook.Definition().Mode != webhook.AsyncCallback && course.Light(r.op) && trusted(r.key.Namespace)
}

// expectsPoll reports whether the call under way is unrecorded and its Webhook is polled. Unless such a call fails, the
// operation waits afterwards and needs a finalizer. That write costs less during the call, since the object is still
// small, and the call does not wait for it.
func (r *run) expectsPoll() bool {
	if r.unrecorded.IsZero() {
		return false
	}
	for _, f := range r.flying {
		return f.hook.Definition().Mode == webhook.Async // an unrecorded call is alone
	}
	return false
}

// recordDue returns the time at which the calls under way have to be recorded. It returns the zero time if that is
// now, or if all are recorded.
func (r *run) recordDue(now time.Time) time.Time {
	if r.unrecorded.IsZero() || len(r.flying) == 0 {
		return time.Time{}
	}
	if due := r.unrecorded.Add(recordAfter); now.Before(due) {
		return due
	}
	return time.Time{}
}
