package reconcile

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is what a controller is doing.
type State string

// The states of a controller.
const (
	StateNew      State = "not started"
	StateBlocked  State = "cannot start" // Description.Error says why; it is tried again
	StateListing  State = "listing"      // Description.WaitsFor says what is not listed yet, and why
	StateStandby  State = "standby"      // another process leads; if it is not known who, Description.Error says why
	StateRunning  State = "running"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
)

// Description says how a controller is doing, and what it fails at.
type Description struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"controller"`
	Kind    string `json:"kind,omitempty"`
	// Of is the kind of its objects by itself, once it is known.
	Of schema.GroupKind `json:"of,omitzero"`
	// At is file:line of the declaration.
	At    string `json:"at"`
	State State  `json:"state"`
	// Error keeps it from working.
	Error    string   `json:"error,omitempty"`
	Leader   string   `json:"leader,omitempty"`
	WaitsFor []string `json:"waitsFor,omitempty"`
	Ready    int      `json:"ready"`
	Waiting  int      `json:"waiting"`
	Running  int      `json:"running"`
	Failed   int      `json:"failed"`
	// BlockedSince is when the last of the workers began what it is at, if that is more than a minute ago and none is free;
	// else nil. Nothing else is reconciled until one returns.
	BlockedSince *time.Time `json:"blockedSince,omitempty"`
	// Oldest has been waiting for a worker for longest; nil: nothing does. It is no part of /debug/controllers.
	Oldest *WorkDescription `json:"-"`
	// Working are the reconciliations under way, those that began first first, 100 at most; Running counts all. They are no
	// part of /debug/controllers.
	Working []WorkDescription `json:"-"`
	// Failures are those that failed first, in that order; Failed counts all.
	Failures []FailureDescription `json:"failures"`
}

// FailureDescription is an object whose last reconciliation failed.
type FailureDescription struct {
	Key      string `json:"key"`
	Class    Class  `json:"class"`
	Error    string `json:"error"`
	Stack    string `json:"stack,omitempty"` // of a panic
	Attempts int    `json:"attempts"`
	// Since is the time of the first failure since the last success, or the last change of the spec; At that of the
	// last attempt.
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
	// Next is the time of the next attempt; nil while there is none to come by itself, or one waits for a worker, or
	// runs: Doing says so.
	Next  *time.Time `json:"next,omitempty"`
	Doing string     `json:"doing"`
}

// WorkDescription is an object that waits for a worker, or is being reconciled.
type WorkDescription struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
	// Attempt counts the reconciliations since the last success, or the last change of the spec; 0 of one that waits.
	Attempt int `json:"attempt,omitempty"`
	// Waits is the error for which it tries a request again, if it does.
	Waits string `json:"waits,omitempty"`
}

// blockedAfter is how long all workers are at the same objects before the controller counts as blocked.
const blockedAfter = time.Minute

// maxWorking bounds the reconciliations under way that are described.
const maxWorking = 100

// Bounds of what is shown of one failure, in bytes.
const (
	maxErrorShown = 1 << 10
	maxStackShown = 8 << 10
)

// Describe returns how the controller is doing now, with at most so many of its failures; negative: all of them. It is
// quick with none.
func (c *Controller) Describe(failures int) Description {
	return c.describe(failures, func(Key, Class) bool { return true })
}

// describe is Describe of those failures for which pick is true.
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

// describe is called under mu.
func (r *reconciliation) describe() WorkDescription {
	d := WorkDescription{Key: r.key.String(), Since: r.begun, Attempt: r.attempt}
	if last, ok := r.waiting.Last(); ok && last.Err != nil {
		d.Waits = cut(last.Err.Error(), maxErrorShown)
	}
	return d
}

var doings = map[itemState]string{idle: "rests", ready: "waits for a worker", waiting: "waits", running: "runs"}

// byAge puts what failed first first.
func byAge(a, b Failure) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.String(), b.Key.String()))
}

// state says what the controller is doing. Under mu.
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
