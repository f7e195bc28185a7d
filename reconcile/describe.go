package reconcile

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is the state of a controller.
type State string

// The states of a controller.
const (
	StateNew      State = "not started"
	StateBlocked  State = "cannot start" // Description.Error has the reason; it is tried again
	StateListing  State = "listing"      // Description.WaitsFor lists the missing watches and why
	StateStandby  State = "standby"      // another process leads; Description.Error says why the leader is unknown
	StateRunning  State = "running"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
)

// Description describes the state of a controller and its failures.
type Description struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"controller"`
	Kind    string `json:"kind,omitempty"`
	// Of is the group and kind of its objects, once it is known.
	Of schema.GroupKind `json:"of,omitzero"`
	// At is the file:line of the declaration.
	At    string `json:"at"`
	State State  `json:"state"`
	// Error is why it does not work.
	Error    string   `json:"error,omitempty"`
	Leader   string   `json:"leader,omitempty"`
	WaitsFor []string `json:"waitsFor,omitempty"`
	Ready    int      `json:"ready"`
	Waiting  int      `json:"waiting"`
	Running  int      `json:"running"`
	Failed   int      `json:"failed"`
	// BlockedSince is set while all workers have been busy with the same objects for more than a minute. It is when the
	// last of these reconciliations began. No other object is reconciled until one returns.
	BlockedSince *time.Time `json:"blockedSince,omitempty"`
	// Oldest is the object that has waited longest for a worker, or nil. /debug/controllers does not show it.
	Oldest *WorkDescription `json:"-"`
	// Working are the running reconciliations, oldest first, at most 100; Running counts all. /debug/controllers does not
	// show them.
	Working []WorkDescription `json:"-"`
	// Failures are ordered by age, oldest first; Failed counts all.
	Failures []FailureDescription `json:"failures"`
}

// FailureDescription describes an object whose last reconciliation failed.
type FailureDescription struct {
	Key      string `json:"key"`
	Class    Class  `json:"class"`
	Error    string `json:"error"`
	Stack    string `json:"stack,omitempty"` // of a panic
	Attempts int    `json:"attempts"`
	// Since is the time of the first failure since the last success, or since the last change of the spec. At is the time
	// of the last attempt.
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
	// Next is the time of the next attempt. It is nil if none is scheduled, or if the object is ready or running; Doing
	// says which.
	Next  *time.Time `json:"next,omitempty"`
	Doing string     `json:"doing"`
}

// WorkDescription describes an object that waits for a worker or is being reconciled.
type WorkDescription struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
	// Attempt counts the reconciliations since the last success, or since the last change of the spec. It is 0 for an
	// object that waits for a worker.
	Attempt int `json:"attempt,omitempty"`
	// Waits is the error for which the reconciliation currently retries a request, if it does.
	Waits string `json:"waits,omitempty"`
}

// blockedAfter is how long all workers are busy with the same objects before the controller counts as blocked.
const blockedAfter = time.Minute

// maxWorking bounds Description.Working.
const maxWorking = 100

// Bounds of the texts in a FailureDescription, in bytes.
const (
	maxErrorShown = 1 << 10
	maxStackShown = 8 << 10
)

// Describe returns the current state of the controller, with at most the given number of failures. A negative number
// means all. A call with 0 is cheap.
func (c *Controller) Describe(failures int) Description {
	return c.describe(failures, func(Key, Class) bool { return true })
}

// describe is Describe for the failures for which pick returns true.
func (c *Controller) describe(limit int, pick func(Key, Class) bool) Description {
	d := Description{Cluster: c.from.Cluster, Name: c.name, At: c.place, Failures: []FailureDescription{}}
	type failing struct {
		*Failure
		doing string
	}
	var all []failing
	var oldest *item
	c.mu.Lock()
	d.Kind, d.State = c.kindOf, c.state()
	if c.problem != nil {
		d.Error = c.problem.Error()
	}
	if d.State == StateListing {
		for _, s := range c.unlisted() {
			for _, why := range s.handle.Unlisted() {
				d.WaitsFor = append(d.WaitsFor, s.watch.name+": "+why)
			}
		}
	}
	d.Ready, d.Waiting, d.Running = c.q.ready, len(c.q.times), c.q.running
	d.Of = c.main.kind.GroupKind()
	for _, it := range c.q.items {
		if it.state == ready && (oldest == nil || it.came.Before(oldest.came)) {
			oldest = it
		}
		if it.fail == nil {
			continue
		}
		if d.Failed++; limit != 0 && pick(it.key, it.fail.class) {
			all = append(all, failing{it.fail.public(c.name, it), doings[it.state]})
		}
	}
	if oldest != nil {
		d.Oldest = &WorkDescription{Key: oldest.key.String(), Since: oldest.came}
	}
	if last := c.runs.last; last != nil && c.q.running >= c.set.workers && c.now().Sub(last.begun) > blockedAfter {
		d.BlockedSince = &last.begun
	}
	for r := c.runs.first; r != nil && len(d.Working) < maxWorking; r = r.next {
		d.Working = append(d.Working, r.describe())
	}
	c.mu.Unlock()
	if d.State == StateStandby {
		leader, err := leaderOf(c.set.leader)
		if d.Leader = leader; err != nil {
			d.Error = err.Error()
		}
	}
	slices.SortFunc(all, func(a, b failing) int { return byAge(*a.Failure, *b.Failure) })
	if limit >= 0 && len(all) > limit {
		all = all[:limit]
	}
	for _, f := range all {
		one := FailureDescription{
			Key: f.Key.String(), Class: f.Class, Attempts: f.Attempts, Since: f.Since, At: f.At, Doing: f.doing,
			Error: cut(f.Err.(*Error).Err.Error(), maxErrorShown),
		}
		if _, stack, ok := asPanic(f.Err); ok {
			one.Stack = cut(string(stack), maxStackShown)
		}
		if !f.Next.IsZero() {
			one.Next = &f.Next
		}
		d.Failures = append(d.Failures, one)
	}
	return d
}

// describe returns r as a WorkDescription. The caller holds Controller.mu.
func (r *reconciliation) describe() WorkDescription {
	d := WorkDescription{Key: r.key.String(), Since: r.begun, Attempt: r.attempt}
	if last, ok := r.waiting.Last(); ok && last.Err != nil {
		d.Waits = cut(last.Err.Error(), maxErrorShown)
	}
	return d
}

var doings = map[itemState]string{idle: "rests", ready: "waits for a worker", waiting: "waits", running: "runs"}

// byAge orders failures by Since, oldest first.
func byAge(a, b Failure) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
}

// state returns the state of the controller. The caller holds c.mu.
func (c *Controller) state() State {
	synced := false
	select {
	case <-c.synced:
		synced = true
	default:
	}
	switch {
	case c.ended:
		return StateStopped
	case c.problem != nil:
		return StateBlocked
	case c.life == nil:
		return StateNew
	case c.life.Err() != nil:
		return StateStopping
	case c.primary == nil || !synced:
		return StateListing
	case c.term == nil && c.set.leader != nil:
		return StateStandby
	}
	return StateRunning
}
