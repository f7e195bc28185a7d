package reconcile

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/inspect"
)

// objectState is a snapshot of an object in the scheduler.
type objectState struct {
	state   itemState
	due     time.Time
	dueFor  ReasonType
	fail    *failure // a copy
	run     *reconciliation
	begun   time.Time
	attempt int

	workers, limit int
	ready          int
	before, own    int
	readySince     time.Time // since when it is ready
	busy           []busyWorker
	paced          time.Time // when the total rate limit allows the next start
	last           time.Time // time of the last success
}

// busyWorker is the object of a worker, the time since when, and the goroutine.
type busyWorker struct {
	key       Key
	since     time.Time
	goroutine goroutine.ID
}

// maxBusy bounds the busy workers in an objectState.
const maxBusy = 5

// object returns a snapshot of one object.
func (s *scheduler) object(k Key) objectState {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := objectState{workers: s.q.running, limit: s.limit, ready: s.q.ready}
	it := s.q.items[k]
	if it == nil {
		o.last = s.history.last(k)
		return o
	}
	o.state, o.due, o.dueFor = it.state, it.due, it.dueFor
	if it.fail != nil {
		seen := *it.fail
		o.fail = &seen
	}
	switch it.state {
	case running:
		if r := it.current; r != nil {
			o.run, o.begun, o.attempt = r, r.begun, r.attempt
		}
	case ready:
		o.readySince = it.readySince
		o.before, o.own = s.q.ahead(it)
		if free := s.total.nextStart(); free.After(time.Now()) {
			o.paced = free
		}
		for r := s.runs.first; r != nil && len(o.busy) < maxBusy; r = r.next {
			o.busy = append(o.busy, busyWorker{r.key, r.begun, r.goroutine})
		}
	default:
		o.last = s.history.last(k)
	}
	return o
}

// counts returns the numbers of objects by state.
func (s *scheduler) counts() inspect.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countsLocked()
}

// countsLocked is counts for a caller that holds s.mu.
func (s *scheduler) countsLocked() inspect.Counts {
	c := inspect.Counts{Ready: s.q.ready, Waiting: len(s.q.times), Running: s.q.running}
	for _, it := range s.q.items {
		if it.fail != nil {
			c.Failed++
		}
	}
	return c
}

// ages returns, for each state, the longest time that an object has been in it; 0 if there is no such object.
func (s *scheduler) ages() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	ages := map[string]time.Duration{"ready": 0, "running": 0, "failed": 0}
	grow := func(state string, since time.Time) { ages[state] = max(ages[state], now.Sub(since)) }
	for _, it := range s.q.items {
		switch {
		case it.state == ready:
			grow("ready", it.readySince)
		case it.current != nil:
			grow("running", it.current.begun)
		}
		if it.fail != nil {
			grow("failed", it.fail.since)
		}
	}
	return ages
}

// workload is a snapshot of the work of a scheduler.
type workload struct {
	inspect.Counts
	leads        bool
	oldest       *inspect.Work  // the object that has been ready for the longest time
	working      []inspect.Work // the oldest reconciliations, at most maxWorking
	blockedSince *time.Time     // since when all workers are busy with the same objects, if for long
	failing      []failingObject
}

// failingObject is an object whose last attempt failed.
type failingObject struct {
	*Failure
	state itemState
}

const (
	// maxWorking bounds workload.working.
	maxWorking = 100
	// blockedAfter is how long all workers are busy with the same objects before the controller counts as blocked.
	blockedAfter = time.Minute
)

// workload returns a snapshot of the work, with the failures for which pick returns true, in no order. If pick is nil,
// there are none.
func (s *scheduler) workload(pick func(Key, Class) bool) workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := workload{
		Counts: s.countsLocked(),
		leads:  s.term != nil,
	}
	var oldest *item
	for _, it := range s.q.items {
		if it.state == ready && (oldest == nil || it.readySince.Before(oldest.readySince)) {
			oldest = it
		}
		if it.fail != nil && pick != nil && pick(it.key, it.fail.class) {
			w.failing = append(w.failing, failingObject{it.fail.public(s.controller, it), it.state})
		}
	}
	if oldest != nil {
		w.oldest = &inspect.Work{Key: oldest.key.String(), Since: oldest.readySince}
	}
	if last := s.runs.last; last != nil && s.q.running >= s.limit && time.Since(last.begun) > blockedAfter {
		w.blockedSince = &last.begun
	}
	for r := s.runs.first; r != nil && len(w.working) < maxWorking; r = r.next {
		w.working = append(w.working, r.describe())
	}
	return w
}

// describe returns r as an inspect.Work.
func (r *reconciliation) describe() inspect.Work {
	d := inspect.Work{Key: r.key.String(), Since: r.begun, Attempt: r.attempt}
	if last, ok := r.waiting.Last(); ok && last.Err != nil {
		d.Waits = truncate(last.Err.Error(), maxErrorShown)
	}
	return d
}
