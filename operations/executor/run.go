package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/internal/share"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// run is the packet of the flow of one operation. While nothing is to be done this is all there is of an operation, so
// it is kept small (TestParkedRunIsSmall).
type run struct {
	key    store.Key
	tenant string
	news   news

	// What follows is shared with those who follow the stores and with the calls, and guarded by Executor.mu.

	back  []landing // calls that have come back
	line  *line     // behind the operation that has to end first
	near  int64     // when nine tenths of its timeout are over, in Unix seconds
	names names     // of the Webhooks that it may call
	// accepted is when the request was accepted, as far as that is known; nil once it was picked up.
	accepted *course.Acceptance
	missed   bool // something happened since the run looked last
	phase    phase

	// What follows belongs to the flow. While that is parked, others may look at it under Executor.mu.

	recorded bool // the operation was picked up, and not only in memory
	entered  bool // the first call was begun; before, it has to be the turn of the operation
	outdated bool // the API server does not keep the keys of calls
	// what is known is not older than the executor: read from the API server, written by this run, or of a store that has
	// caught up
	confirmed bool
	thin      course.Thinness // how much of the operation has given way because it was too large to be stored
	stripped  course.Thinness // up to where the requests for that were made
	size      int32           // bytes of the last write
	tries     int32           // failed requests to the API server in a row, for back-off
	// version is that of the last state this run has read or written.
	version string
	// about is a hash of the request that op is about; 0 before there was one.
	about uint64
	// later is when polls are due that the status says are due earlier, since the ones before changed nothing.
	later map[record.Target]time.Time
	*work // nil while nothing is to be done; look and settle change that, under Executor.mu
}

// phase tells whether an operation is in progress, and whether progress counts it.
type phase uint8

const (
	uncounted phase = iota // in progress; the run has not looked yet, or counts no more
	counted                // in progress, and counted
	ended                  // it had ended when the run began or looked last
)

// work is what a run has besides while something is to be done: while it looks, has calls under way or changes that are
// not written, or waits for a share of its namespace.
type work struct {
	// op is the newest state known, with what is not written yet. It is nil while the flow is parked with no call under
	// way, since the store has it too.
	op *v1alpha1.Operation
	// unsaved are the changes of the status that are not written yet, to be made again on a newer state after a conflict.
	unsaved []unsavedChange
	// unrecorded is when a call was begun that is not recorded yet; zero if there is none (unrecorded.go).
	unrecorded time.Time
	written    time.Time // when the status was written last
	flying     map[record.Target]*flight
	refused    map[record.Target]refusal
	refusal    error       // what was refused as too large, without anything left that could give way
	paid       share.Price // what was spent for the next write
	place      string      // the one that it was found to be the turn of the operation for
	alone      bool        // when that was found, nobody in the namespace locked anything
	owes       bool        // what a call has brought is among unsaved
	short      bool        // the write before had to wait for the share of the namespace
	another    bool        // the run has turned to another request, which its spans do not know yet
	troubled   bool        // there is trouble (trouble.go)
	looking    bool        // the flow works, so that nobody else may look at what belongs to it (sight.go)
}

// idle tells whether there is nothing in what a run works with. What is empty it lets go.
func (w *work) idle() bool {
	if len(w.flying) == 0 {
		w.flying = nil
	}
	if len(w.refused) == 0 {
		w.refused = nil
	}
	busy := w.op != nil || w.flying != nil || w.refused != nil || len(w.unsaved) > 0 || !w.unrecorded.IsZero()
	return !busy && w.refusal == nil && w.paid == (share.Price{}) && !w.short && !w.troubled
}

// news is set when something has happened that a run may want to know. It is a flow.Wait for one fiber.
type news struct {
	mu      sync.Mutex
	set     bool
	waiting bool
	waker   flow.Waker
}

// Set wakes the run, now or as soon as it parks.
func (n *news) Set() {
	n.mu.Lock()
	n.set = true
	waker, waiting := n.waker, n.waiting
	n.mu.Unlock()
	if waiting {
		waker.Wake()
	}
}

// take reports whether there was news, and forgets it.
func (n *news) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.set
	n.set = false
	return was
}

// Watch implements flow.Wait.
func (n *news) Watch(w flow.Waker) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waker, n.waiting = w, true
	return n.unwatch
}

func (n *news) unwatch() {
	n.mu.Lock()
	n.waker, n.waiting = flow.Waker{}, false
	n.mu.Unlock()
}

// Check implements flow.Wait.
func (n *news) Check(context.Context, bool) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set, nil
}

// Backstop implements flow.Backstopped: memory misses no event.
func (n *news) Backstop() time.Duration { return 0 }

// unsavedChange is a change of the status that is not written yet.
type unsavedChange struct {
	course.Change
	repeated time.Time     // when a repeated try made it, which may wait (repeated.go); zero: it has to be written
	target   record.Target // of a repeated try
}

// apply makes a change now and remembers it until it is written.
func (r *run) apply(c course.Change) { r.change(unsavedChange{Change: c}) }

func (r *run) change(c unsavedChange) {
	c.Change(r.op)
	r.unsaved = append(r.unsaved, c)
}

// adopt takes a newer state and makes the unsaved changes on it, if it is about the same operation, and that has not
// ended.
func (r *run) adopt(op *v1alpha1.Operation) {
	if about := course.RequestOf(op).Hash(); about != r.about {
		if r.about != 0 {
			r.unsaved, r.unrecorded = nil, time.Time{}
			r.cut(errOver)
			r.another = true
		}
		r.about = about
	}
	if op.Terminal() {
		r.unsaved, r.unrecorded = nil, time.Time{}
	}
	r.op, r.version, r.recorded = op, op.ResourceVersion, op.PickedUp()
	r.entered = course.Entered(op) || !r.unrecorded.IsZero()
	for _, c := range r.unsaved {
		c.Change(r.op)
	}
}

// dropSince forgets the changes after the first n, and with them the state that they were made on, so that the next
// look begins with a newer one. A state that was adopted since has perhaps dropped all of them: that of an operation
// that has ended.
func (r *run) dropSince(n int) {
	r.op, r.unsaved = nil, r.unsaved[:min(n, len(r.unsaved))]
}

// flight is one try or poll under way. It runs in a goroutine of its own, so that neither the other calls of its
// operation nor other operations wait for it; the run is told when it has come back.
type flight struct {
	target    record.Target
	operation string // its id
	attempt   string
	since     time.Time
	hook      *webhook.Compiled
	permit    *webhook.Permit
	cancel    context.CancelCauseFunc
}

// landing is a flight that has come back.
type landing struct {
	flight *flight
	result webhook.Result
}

var (
	errOver     = errors.New("the run of the operation is over")
	errDecided  = errors.New("the outcome of the operation is decided")
	errDeadline = errors.New("the deadline has passed")
)

// cut cancels the calls under way.
func (r *run) cut(cause error) {
	for _, f := range r.flying {
		f.cancel(cause)
	}
}

// refusal is a call that has to wait: for its turn, or until its Webhook is compiled.
type refusal struct {
	call   string             // its idempotency key; empty: its endpoint was not asked
	until  time.Time          // ask again then; zero: now
	share  string             // of what its namespace has used up its share; empty: that is not why
	reason webhook.WaitReason // why its endpoint is not to be called; empty: that is not why
	since  time.Time          // from when on it has been refused for that
}

// isFlying tells whether a call is under way.
func (r *run) isFlying(t record.Target) bool { return r.flying[t] != nil }

// notBefore returns until when a call has to wait for something that its status does not tell.
func (r *run) notBefore(t record.Target) time.Time {
	turn, poll := r.refused[t].until, r.later[t]
	if turn.After(poll) {
		return turn
	}
	return poll
}

// compiling tells whether an operation with nothing under way waits for a Webhook that will soon be compiled.
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

// share returns what the operation waits for its namespace's share of; empty: for nothing.
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

// askAgain makes the calls that wait for their turn due.
func (r *run) askAgain() {
	for t, refusal := range r.refused {
		refusal.until = time.Time{}
		r.refused[t] = refusal
	}
}

// party is who shares with others what the run uses.
func (r *run) party() share.Party { return share.Party{Namespace: r.key.Namespace, Tenant: r.tenant} }

// line are the runs that wait for the end of one operation. It is guarded by Executor.mu.
type line struct {
	key  store.Key
	runs map[*run]struct{}
}

// compileSoon is how long an operation waits for its Webhook to be compiled before it says so.
const compileSoon = time.Second
