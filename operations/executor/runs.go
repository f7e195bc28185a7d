package executor

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/shard"
)

// runs has the live run of each operation, and guards the fields of runs that several goroutines use (see run). The
// flow of a run owns its other fields. Readers may read these while the flow is parked: between park and the next
// drainEvents, under the lock. The flow locks at both ends anyway, so an operation pays neither a copy nor a further
// lock for readers.
//
// It is safe for concurrent use. Other locks may be taken under its lock: those of handover.Slots and of the tally, and
// by the callers of read those of lines, drain and troubles.
type runs struct {
	// onEnd is called with the lock held when an operation has no run any more.
	onEnd func(key store.Key)

	mu       sync.Mutex
	live     map[string]map[string]*run // by namespace and name
	progress progress                   // counts the operations of live
	readers  map[*run]chan struct{}     // closed when the flow of the run has parked or ended
}

func newRuns(onEnd func(key store.Key)) *runs {
	return &runs{onEnd: onEnd, live: make(map[string]map[string]*run), readers: make(map[*run]chan struct{})}
}

// patience is how long a reader waits for a working flow to park.
const patience = 200 * time.Millisecond

// add makes a run the live one of its operation, unless there is one already. enter is called with the lock held. If it
// returns false, the slot of the operation is not here.
func (s *runs) add(r *run, enter func() bool) (added, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(r.key) != nil {
		return false, true
	}
	if !enter() {
		return false, false
	}
	if s.live[r.key.Namespace] == nil {
		s.live[r.key.Namespace] = make(map[string]*run)
	}
	s.live[r.key.Namespace][r.key.Name] = r
	return true, true
}

// find returns the live run of an operation; nil if there is none. The caller holds mu.
func (s *runs) find(key store.Key) *run { return s.live[key.Namespace][key.Name] }

// notify wakes the run of an operation after an event. It reports whether there is a run.
func (s *runs) notify(key store.Key) bool {
	s.mu.Lock()
	r := s.find(key)
	if r != nil {
		r.missed = true
	}
	s.mu.Unlock()
	if r != nil {
		r.news.Set()
	}
	return r != nil
}

// notifyNaming wakes the runs of a namespace that name one of these Webhooks, with false positives.
func (s *runs) notifyNaming(namespace string, changed nameSet) (woken int) {
	var named []*run
	s.mu.Lock()
	for _, r := range s.live[namespace] {
		if r.names&changed != 0 {
			r.missed = true
			named = append(named, r)
		}
	}
	s.mu.Unlock()
	for _, r := range named {
		r.news.Set()
	}
	return len(named)
}

// of returns the keys of the operations of slots that have a run, and the flags that wake these runs.
func (s *runs) of(slots shard.Set) (keys []store.Key, flags []*news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, space := range s.live {
		if slots.Has(namespace, "") {
			for _, r := range space {
				keys, flags = append(keys, r.key), append(flags, &r.news)
			}
		}
	}
	return keys, flags
}

// unfinished selects the operations of fibers that have not ended.
func (s *runs) unfinished(fibers []string) (keys []store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fiber := range fibers {
		namespace, name, _ := strings.Cut(fiber, "/")
		key := store.Key{Namespace: namespace, Name: name}
		if r := s.find(key); r != nil && r.phase != ended {
			keys = append(keys, key)
		}
	}
	return keys
}

// census returns the number of operations in progress, and of those near their timeout (nine tenths have passed).
func (s *runs) census(now time.Time) census {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress.count(now.Unix())
}

// remove removes a run whose flow has ended, unless another run has taken its place. It reports whether the run has
// missed an event.
func (s *runs) remove(r *run) (missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.show(r)
	now := s.find(r.key)
	if now == nil || now == r { // else the new run updates the tally
		s.onEnd(r.key)
	}
	if now != r {
		return false
	}
	s.drop(r.key)
	return r.missed
}

// forget removes the live run of a deleted operation. It reports whether there was one.
func (s *runs) forget(key store.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.find(key) != nil
	s.drop(key)
	return live
}

// drop removes the live run of a key. The caller holds mu.
func (s *runs) drop(key store.Key) {
	space := s.live[key.Namespace]
	if r := space[key.Name]; r != nil {
		s.uncount(r)
	}
	if delete(space, key.Name); len(space) == 0 {
		delete(s.live, key.Namespace)
	}
}

// uncount removes a run from the operations in progress. The caller holds mu.
func (s *runs) uncount(r *run) {
	if r.phase == counted {
		s.progress.leave(r.near)
		r.phase = uncounted
	}
}

// drainEvents marks the start of a step, so that events from now on are not missed. It returns the calls that have
// returned, and reports whether the run was woken. It allocates r.work.
func (s *runs) drainEvents(r *run) (returned []returnedCall, woken bool) {
	woken = r.news.take()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.missed = false
	if r.work == nil {
		r.work = &work{}
	}
	r.working = true
	returned, r.returned = r.returned, nil
	return returned, woken
}

// deliver hands the result of a call to its run. The caller wakes the run.
func (s *runs) deliver(r *run, l returnedCall) {
	s.mu.Lock()
	r.returned = append(r.returned, l)
	s.mu.Unlock()
}

// putBack keeps returned calls for the next step.
func (s *runs) putBack(r *run, returned []returnedCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.returned = append(returned, r.returned...)
}

// update updates the data of a run that other goroutines read: the counts for metrics, and the names of Webhooks whose
// changes wake the run.
func (s *runs) update(r *run, running bool, near int64, names nameSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(r.key) == r { // else it is not counted any more
		s.uncount(r)
		if r.phase, r.near = ended, near; running {
			r.phase = counted
			s.progress.enter(near)
		}
	}
	r.names = names
	if r.recorded {
		r.accepted = nil // the status has it
	}
}

// park lets readers see a run that is about to park, and frees its work if it is idle.
func (s *runs) park(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.later) == 0 {
		r.later = nil
	}
	if r.recorded {
		r.accepted = nil // also if it was recorded after the last update
	}
	if r.idle() {
		r.work = nil
	}
	s.show(r)
}

// conceal hides a run that has ended from readers.
func (s *runs) conceal(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.working = true
}

// show lets readers see a run, and wakes those that wait. The caller holds mu.
func (s *runs) show(r *run) {
	if r.work != nil {
		r.working = false
	}
	if waiting := s.readers[r]; waiting != nil {
		close(waiting)
		delete(s.readers, r)
	}
}

// read calls f for the run of an operation, with the lock held; with nil, if there is none. If the flow of the run is
// working, it waits for up to patience, or until ctx ends. works says that the flow is still working after that: f must
// not use the fields of the flow then.
func (s *runs) read(ctx context.Context, key store.Key, f func(r *run, works bool)) {
	s.mu.Lock()
	r := s.find(key)
	if r != nil && r.isWorking() {
		parked := s.readers[r]
		if parked == nil {
			parked = make(chan struct{})
			s.readers[r] = parked
		}
		s.mu.Unlock()
		timer := time.NewTimer(patience)
		select {
		case <-parked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		s.mu.Lock()
		r = s.find(key)
	}
	defer s.mu.Unlock()
	f(r, r != nil && r.isWorking())
}

// newsOf returns the flag that wakes the run of an operation; nil if there is none.
func (s *runs) newsOf(key store.Key) *news {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(key); r != nil {
		return &r.news
	}
	return nil
}

// accept records the version at which a run has seen the present request of its operation, unless a version is known
// already. It reports whether it has recorded it.
func (s *runs) accept(r *run, op *v1alpha1.Operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.accepted.Of(op) {
		return false
	}
	r.accepted = &course.Acceptance{Request: course.RequestOf(op), By: op.ResourceVersion}
	return true
}

// accept records the version at which the present request of an operation was seen, unless a version is known already.
func accept(runs *runs, lines interface{ wake(key store.Key) }, r *run, op *v1alpha1.Operation) {
	if course.Ordinary(op) && runs.accept(r, op) {
		lines.wake(r.key) // a lock may be waiting for that
	}
}

// acceptance returns the known interval in which an operation was accepted that is not picked up yet. It returns false
// until the run of the operation has looked at it.
func (s *runs) acceptance(op *v1alpha1.Operation) (course.Acceptance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.live[op.Namespace][op.Name]
	if r == nil || !r.accepted.Of(op) {
		return course.Acceptance{}, false
	}
	return *r.accepted, true
}

// narrow calls f with the acceptance of an operation, if it is known.
func (s *runs) narrow(op *v1alpha1.Operation, f func(*course.Acceptance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.live[op.Namespace][op.Name]; r != nil && r.accepted.Of(op) {
		f(r.accepted)
	}
}

// forgetAcceptances forgets all acceptance versions, after version numbers have restarted.
func (s *runs) forgetAcceptances() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, space := range s.live {
		for _, r := range space {
			r.accepted = nil
		}
	}
}
