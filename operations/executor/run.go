package executor

import (
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// run is the packet of the flow of one operation. A parked operation costs little more memory than its run, so the
// struct is kept small (TestParkedRunIsSmall).
type run struct {
	key    store.Key
	tenant string
	news   news

	// The following fields are shared with store consumers and calls. The lock of runs guards them.

	returned []returnedCall // calls that have returned
	near     int64          // when nine tenths of the timeout have passed, in Unix seconds
	names    nameSet        // of the Webhooks that the operation may call
	// accepted bounds the version at which the request was accepted; nil once the operation is picked up.
	accepted *course.Acceptance
	missed   bool // an event arrived since the last drainEvents
	phase    phase

	// The following fields belong to the flow. While it is parked, other goroutines may read them under
	// the lock of runs.

	busy     bool  // drain knows that the run has a call under way, or a result that is not recorded
	outdated bool  // the API server drops the keys of calls, since its CRD is too old
	tries    int32 // consecutive failures of requests to the API server, for back-off
	stored
	// later has polls that are due later than the status says, since the previous ones changed nothing.
	later map[record.Target]time.Time
	*work // nil while the run is idle; runs.drainEvents and runs.park change it
}

// newRun returns the run of an operation.
func newRun(key store.Key, op *v1alpha1.Operation) *run {
	r := &run{key: key, tenant: tenant(op)}
	if op.Terminal() {
		r.phase = ended
	}
	return r
}

// tenant returns the tenant of an operation within its namespace; empty if there is none.
func tenant(op *v1alpha1.Operation) string {
	if o := op.Spec.RequestObject; o != nil {
		return o.TenantID
	}
	return ""
}

// phase says whether an operation is in progress, and whether progress counts it.
type phase uint8

const (
	uncounted phase = iota // in progress; not looked at yet, or no longer counted
	counted                // in progress, and counted
	ended                  // terminal at the start of the run or at the last step
)

// work is the state of a run that is not idle. Such a run is being worked on, has calls under way or unsaved changes,
// or waits for a share of its namespace.
type work struct {
	edit
	flying  map[record.Target]*flight
	refused map[record.Target]refusal
	refusal error  // a rejection of the status as too large, with no details left to drop
	place   string // the place for which the turn was found last
	alone   bool   // no operation of the namespace held a lock at that time
	owes    bool   // unsaved has the result of a call
	working bool   // the flow is working: other goroutines may not read its fields
}

// idle reports whether the run needs no work. It sets empty maps to nil, to free their memory.
func (w *work) idle() bool {
	if len(w.flying) == 0 {
		w.flying = nil
	}
	if len(w.refused) == 0 {
		w.refused = nil
	}
	busy := w.op != nil || w.flying != nil || w.refused != nil || len(w.unsaved) > 0 || !w.unrecorded.IsZero()
	return !busy && w.refusal == nil && w.paid == (fair.Price{}) && !w.short && !w.troubled
}

var (
	errOver    = errors.New("the run of the operation is over")
	errDecided = errors.New("the outcome of the operation is decided")
)

// cut cancels the calls under way.
func (r *run) cut(cause error) {
	for _, f := range r.flying {
		f.cancel(cause)
	}
}

// isFlying reports whether a call is under way.
func (r *run) isFlying(t record.Target) bool { return r.flying[t] != nil }

// notBefore returns the time before which a call has to wait, for reasons that are not in the status.
func (r *run) notBefore(t record.Target) time.Time {
	turn, poll := r.refused[t].until, r.later[t]
	if turn.After(poll) {
		return turn
	}
	return poll
}

// compiling reports whether an operation with no call under way waits for a Webhook that is likely to be compiled
// soon.
func (r *run) compiling(now time.Time) bool {
	if len(r.flying) > 0 {
		return false
	}
	for _, refusal := range r.refused {
		if refusal.share == shareCompile && now.Sub(refusal.since) < compileSoon {
			return true
		}
	}
	return false
}

// share returns the share of the namespace for which the operation waits; empty: none.
func (r *run) share() string {
	for _, refusal := range r.refused {
		if refusal.share != "" {
			return refusal.share
		}
	}
	if r.short {
		return shareWrites
	}
	return ""
}

func (r *run) refuse(t record.Target, why refusal) {
	if r.refused == nil {
		r.refused = make(map[record.Target]refusal)
	}
	if was, again := r.refused[t]; again && was.share == why.share && was.reason == why.reason {
		why.since = was.since
	}
	r.refused[t] = why
}

// askAgain lets the calls that wait for their turn ask for it again at once.
func (r *run) askAgain() {
	for t, refusal := range r.refused {
		refusal.until = time.Time{}
		r.refused[t] = refusal
	}
}

// party returns the namespace and tenant whose shares the run uses.
func (r *run) party() fair.Party { return fair.Party{Group: r.key.Namespace, Member: r.tenant} }

// compileSoon is how long an operation waits for the compilation of its Webhook before its status shows the wait.
const compileSoon = time.Second

// draft returns a handle of the state of a run that is not idle.
func (r *run) draft() draft {
	return draft{key: r.key, party: r.party(), wake: &r.news, stored: &r.stored, edit: &r.work.edit}
}
