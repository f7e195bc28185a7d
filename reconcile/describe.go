package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// blockedAfter is how long all workers are busy with the same objects before the controller counts as blocked.
const blockedAfter = time.Minute

// maxWorking bounds inspect.Controller.Working.
const maxWorking = 100

// Bounds of the texts in a inspect.Failure, in bytes.
const (
	maxErrorShown = 1 << 10
	maxStackShown = 8 << 10
)

// Describe returns the current state of the controller, with at most the given number of failures. A negative number
// means all. A call with 0 is cheap.
func (c *Controller) Describe(failures int) inspect.Controller {
	return c.describe(failures, func(Key, Class) bool { return true })
}

// describe is Describe for the failures for which pick returns true.
func (c *Controller) describe(limit int, pick func(Key, Class) bool) inspect.Controller {
	d := inspect.Controller{Cluster: c.from.Cluster, Name: c.name, At: c.place, Failures: []inspect.Failure{}}
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
	if d.State == inspect.StateListing {
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
		d.Oldest = &inspect.Work{Key: oldest.key.String(), Since: oldest.came}
	}
	if last := c.runs.last; last != nil && c.q.running >= c.set.workers && c.now().Sub(last.begun) > blockedAfter {
		d.BlockedSince = &last.begun
	}
	for r := c.runs.first; r != nil && len(d.Working) < maxWorking; r = r.next {
		d.Working = append(d.Working, r.describe())
	}
	c.mu.Unlock()
	if d.State == inspect.StateStandby {
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
		one := inspect.Failure{
			Key: f.Key.String(), Class: string(f.Class), Attempts: f.Attempts, Since: f.Since, At: f.At, Doing: f.doing,
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

// describe returns r as a inspect.Work. The caller holds Controller.mu.
func (r *reconciliation) describe() inspect.Work {
	d := inspect.Work{Key: r.key.String(), Since: r.begun, Attempt: r.attempt}
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
func (c *Controller) state() inspect.State {
	synced := false
	select {
	case <-c.synced:
		synced = true
	default:
	}
	switch {
	case c.ended:
		return inspect.StateStopped
	case c.problem != nil:
		return inspect.StateBlocked
	case c.life == nil:
		return inspect.StateNew
	case c.life.Err() != nil:
		return inspect.StateStopping
	case c.primary == nil || !synced:
		return inspect.StateListing
	case c.term == nil && c.set.leader != nil:
		return inspect.StateStandby
	}
	return inspect.StateRunning
}
