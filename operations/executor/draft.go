package executor

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// stored is what a run knows about the stored object, also while the run is idle.
type stored struct {
	// version is the version of the state that this run has read or written last.
	version string
	// about is a hash of the request of the object; 0 before the first state is known.
	about    uint64
	size     int32           // bytes of the last write
	thin     course.Thinness // details dropped because the operation was too large to be stored
	stripped course.Thinness // the level up to which the requests for thin were made
	recorded bool            // the stored status has picked up the operation
	entered  bool            // the first call was started; until then the operation waits for its turn
	// confirmed says that the known state is at least as new as the start of this executor. It was read from the API
	// server, written by this run, or read from a store that has caught up.
	confirmed bool
}

// edit is the newest known state of an operation with the changes that are not written yet.
type edit struct {
	// op is the newest known state, with the unsaved changes applied. It is nil while the flow is parked with no call
	// under way, since the store has the object, too.
	op *v1alpha1.Operation
	// unsaved are the status changes that are not written yet. They are applied again to a newer state after a
	// conflict.
	unsaved []unsavedChange
	// unrecorded is the start of a call that is not recorded yet; zero if there is none (unrecorded.go).
	unrecorded time.Time
	written    time.Time  // last write of the status
	paid       fair.Price // budget spent for the next write
	short      bool       // the next write waits, or has waited, for the namespace's share
	troubled   bool       // troubles has an entry
	replaced   bool       // op has become another request; the flow resets this
}

// draft is a handle of the state of an operation that is written to the API server. The flow of its run owns that
// state.
type draft struct {
	key   store.Key
	party fair.Party // whose share the writes use
	wake  *news
	*stored
	*edit
}

// unsavedChange is a status change that is not written yet.
type unsavedChange struct {
	course.Change
	repeated time.Time     // time of the repeated try whose write may wait (repeated.go); zero: write it at the next save
	target   record.Target // of a repeated try
}

// apply applies a change now, and keeps it until it is written.
func (d *edit) apply(c course.Change) { d.change(unsavedChange{Change: c}) }

func (d *edit) change(c unsavedChange) {
	c.Change(d.op)
	d.unsaved = append(d.unsaved, c)
}

// dropSince drops the unsaved changes after the first n, and op, to which they are applied already. The next step
// starts with a newer state. There may be fewer than n changes, since adopting a terminal state drops them all.
func (d *edit) dropSince(n int) {
	d.op, d.unsaved = nil, d.unsaved[:min(n, len(d.unsaved))]
}

// onlyRepeats reports whether all unsaved changes are parts of repeated tries.
func (d *edit) onlyRepeats() bool {
	return !slices.ContainsFunc(d.unsaved, func(c unsavedChange) bool { return c.repeated.IsZero() })
}

// foldRepeats drops the changes of earlier repeated tries of a call that the outcome of the latest one replaces. The
// last of them stays: it counts the tries. So the unsaved changes do not grow with the number of tries.
func (d *edit) foldRepeats(t record.Target) {
	last := -1
	for i, c := range d.unsaved {
		if !c.repeated.IsZero() && c.target == t {
			last = i
		}
	}
	kept := d.unsaved[:0]
	for i, c := range d.unsaved {
		if i == last || c.repeated.IsZero() || c.target != t {
			kept = append(kept, c)
		}
	}
	clear(d.unsaved[len(kept):])
	d.unsaved = kept
}

// adopt takes a newer state and applies the unsaved changes to it. It drops them if the state is about another
// request or terminal.
func (d draft) adopt(op *v1alpha1.Operation) {
	if about := course.RequestOf(op).Hash(); about != d.about {
		if d.about != 0 {
			d.unsaved, d.unrecorded = nil, time.Time{}
			d.replaced = true
		}
		d.about = about
	}
	if op.Terminal() {
		d.unsaved, d.unrecorded = nil, time.Time{}
	}
	d.op, d.version, d.recorded = op, op.ResourceVersion, op.PickedUp()
	d.entered = course.Entered(op) || !d.unrecorded.IsZero()
	for _, c := range d.unsaved {
		c.Change(d.op)
	}
}

// failTooLarge ends an operation of which no more can be recorded. An operation with an open outcome fails. Otherwise
// its compensations and its notification fail.
func failTooLarge(d *edit, refusal error, now time.Time) {
	message := "the operation has become too large to be stored: " + refusal.Error()
	if record.SucceededCalls(d.op) < len(d.op.Spec.WebhookIDs) &&
		!meta.IsStatusConditionTrue(d.op.Status.Conditions, v1alpha1.ConditionError) {
		d.apply(course.Fail(d.op.EffectiveID(), v1alpha1.ReasonTooLarge, message, now))
		return
	}
	failed := course.Verdict{State: v1alpha1.PhaseFailed, Message: message}
	for _, id := range d.op.Spec.CompensateWebhookIDs {
		d.apply(course.Judged(d.op, record.Target{Purpose: record.Compensate, ID: id}, failed, now))
	}
	if id := d.op.Spec.NotifyWebhookID; id != "" {
		d.apply(course.Judged(d.op, record.Target{Purpose: record.Notify, ID: id}, failed, now))
	}
}
