package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// scheduler decides when each object is reconciled, and hands the objects to workers. It owns the queue, the rate
// limits, the running reconciliations and the number of workers, since each decision concerns all of them.
//
// Methods are safe for concurrent use. Under its lock, the scheduler takes only that of the slots.
type scheduler struct {
	controller string // its name, for failures
	limit      int    // of concurrent reconciliations
	each       rate   // for each object; only copied
	preempt    bool
	retries    retries
	slots      *handover.Slots // whose objects are reconciled; nil: replicas do not share the objects
	// uidOf returns the uid of an object, if it exists. It is called with mu held, and only with slots by uid.
	uidOf func(k Key) (uid types.UID, exists bool)
	// startWorker starts a goroutine that calls next. It is called with the lock held.
	startWorker func()
	// wake makes the pump call expire. It is called with the lock held.
	wake func()

	mu      sync.Mutex // guards everything below; never held while user code runs, except for the function of WithDelay
	q       *queue
	runs    runs
	history history
	total   rate            // limit over all objects
	paced   time.Time       // when expire checks total again; zero: not scheduled
	term    context.Context //nolint:containedctx // of the leadership; nil while no work may start
	store   *cache.Store    // of the objects in this term
	workers int
}

// changed records a reason to reconcile an object. now is the state of the object in the event; it is nil if the event
// is about another object.
func (s *scheduler) changed(k Key, why Reason, p priority, of rank, now *facts) {
	if stop := s.record(k, why, p, of, now); stop != nil {
		stop.stop(ErrPreempted)
	}
}

// record is changed without the preemption. It returns the reconciliation that the event preempts.
func (s *scheduler) record(
	k Key, why Reason, p priority, of rank, now *facts,
) (preempted *reconciliation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, held := s.slotOf(k, now) // under the lock: the slot of an earlier object must not replace a newer one
	if !held {
		return nil
	}
	it := s.q.item(k)
	it.slot, it.rank = slot, of
	if now != nil && it.current != nil && *now == it.current.facts { // that reconciliation already works on this state
		it.current.covered.add(why)
		return nil
	}
	it.reasons.add(why)
	it.left = it.left && now == nil
	switch {
	case it.current != nil:
		if now != nil {
			it.seen = now
			if s.preempt && it.current.facts.uid != "" && it.current.facts.differs(*now) {
				preempted = it.current
			}
		}
	case it.fail != nil && now != nil && it.fail.facts.differs(*now):
		it.fail = nil
		s.admit(it, p)
	case it.fail != nil && it.fail.stopped(why.Type):
	case it.state == waiting && it.dueFor == Retried: // in back-off: an event does not shorten it
	default:
		s.admit(it, p)
	}
	s.spawn()
	return preempted
}

// deleted handles the deletion of an object. A running reconciliation is followed by another one.
func (s *scheduler) deleted(k Key, why Reason) {
	var stop *reconciliation
	s.mu.Lock()
	it := s.q.items[k]
	switch {
	case it == nil:
	case it.current != nil:
		it.reasons.add(why)
		it.seen = &facts{}
		if s.preempt {
			stop = it.current
		}
	default:
		s.q.forget(it)
	}
	s.mu.Unlock()
	if stop != nil {
		stop.stop(ErrPreempted)
	}
}

// left forgets an object whose slot is no longer held. A running reconciliation finishes, but is not followed by
// another.
func (s *scheduler) left(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.q.items[k]
	switch {
	case it == nil:
	case it.current != nil:
		it.reasons, it.left = reasons{}, true
	default:
		s.q.forget(it)
	}
}

// slotOf returns the slot of an object, and whether the object may exist and the slot is held. now is the state of the
// object in an event about it, or nil. The caller holds s.mu, so a held slot is not lost meanwhile.
func (s *scheduler) slotOf(k Key, now *facts) (slot int, held bool) {
	if s.slots == nil {
		return 0, true
	}
	var uid types.UID
	switch {
	case s.slots.Layout().By == shard.Namespace:
	case now != nil:
		uid = now.uid
	default:
		var exists bool
		if uid, exists = s.uidOf(k); !exists {
			return 0, false
		}
	}
	return s.slots.Find(k.Namespace, uid)
}

// admit makes an item ready as soon as the rate limit allows it. The caller holds s.mu.
func (s *scheduler) admit(it *item, p priority) {
	p = it.rank.applied(p)
	now := time.Now()
	if free := it.rate.nextStart(); !free.IsZero() && free.After(now) {
		if it.state == waiting && it.dueFor == "" {
			return
		}
		it.prio = p
		s.waitUntil(it, free, "")
		return
	}
	if it.state != ready {
		it.readySince = now
	}
	s.q.makeReady(it, p)
}

// waitUntil schedules an item. The caller holds s.mu.
func (s *scheduler) waitUntil(it *item, at time.Time, why ReasonType) {
	s.q.wait(it, at, why)
	if s.q.times[0] == it {
		s.wake()
	}
}

// expire makes due items ready. It returns when it must be called again, or zero.
func (s *scheduler) expire() (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for it := s.q.expired(now); it != nil; it = s.q.expired(now) {
		if it.dueFor != "" {
			it.reasons.add(Reason{Type: it.dueFor, Key: it.key})
		}
		s.admit(it, high)
	}
	s.spawn()
	if len(s.q.times) > 0 {
		next = s.q.times[0].due
	}
	if !s.paced.After(now) {
		s.paced = time.Time{}
	}
	if !s.paced.IsZero() && (next.IsZero() || s.paced.Before(next)) {
		next = s.paced
	}
	return next
}

// spawn starts workers for ready items, unless the total rate limit forbids it. The caller holds s.mu.
func (s *scheduler) spawn() {
	for s.term != nil && s.workers < s.limit && s.workers < s.q.running+s.q.ready {
		if s.throttled() {
			return
		}
		s.workers++
		s.startWorker()
	}
}

// throttled reports whether the total rate limit forbids a start now. If so, expire runs when a start is allowed. The
// caller holds s.mu.
func (s *scheduler) throttled() bool {
	free := s.total.nextStart()
	if !free.After(time.Now()) {
		return false
	}
	if s.q.ready > 0 && !s.paced.Equal(free) {
		s.paced = free
		s.wake()
	}
	return true
}

// begin permits reconciliations of the objects of a store until the context term ends, or end is called.
func (s *scheduler) begin(term context.Context, store *cache.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term.Err() == nil {
		s.term, s.store = term, store
		s.spawn()
	}
}

// end permits no further reconciliation. The contexts of running ones end with that of the term.
func (s *scheduler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term, s.store = nil, nil
}

// leads reports whether reconciliations may start.
func (s *scheduler) leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term != nil
}

// next starts a reconciliation in the goroutine id of a worker. The caller must then call finish. next returns nil if
// no object is ready, and the worker must end.
func (s *scheduler) next(id goroutine.ID) (context.Context, *reconciliation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var it *item
	if s.term != nil && s.term.Err() == nil && !s.throttled() {
		it = s.q.pick()
	}
	if it == nil {
		s.workers--
		return nil, nil
	}
	now := time.Now()
	s.total.record(now)
	ctx, cancel := context.WithCancelCause(s.term)
	r := &reconciliation{
		store: s.store, key: it.key, slot: it.slot, term: s.term, why: it.reasons, begun: now, cancel: cancel, attempt: 1,
		goroutine: id, item: it,
	}
	it.reasons, it.seen, it.left, it.current = reasons{}, nil, false, r
	s.runs.add(r)
	s.slots.Add(r.slot) // held: otherwise lose or finish has forgotten the item
	if f := it.fail; f != nil {
		r.attempt, r.last = f.attempts+1, f.err
	}
	return ctx, r
}

// replaceWorker starts a worker in place of one whose goroutine ends before next has returned nil.
func (s *scheduler) replaceWorker() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers--
	s.spawn()
}

// reads records the state of the object that a reconciliation works on, and counts the start for the rate limit.
func (s *scheduler) reads(r *reconciliation, seen facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.facts = seen
	r.item.started(r.begun, s.each)
}

// completion is the end of a reconciliation.
type completion struct {
	res     Result
	err     error
	at      time.Time
	existed bool // the object existed when the reconciliation began
	exists  bool // the object exists now
}

// verdict is the decision about an object after a reconciliation.
type verdict struct {
	outcome string          // for the metrics
	failed  *Failure        // nil if it has not failed
	term    context.Context //nolint:containedctx // of the leadership now; nil if this process does not lead
}

// finish records the end of a reconciliation and schedules the next one.
func (s *scheduler) finish(r *reconciliation, end completion) verdict {
	defer s.slots.Leave(r.slot)
	s.mu.Lock()
	defer s.mu.Unlock()
	it := r.item
	it.current, it.state = nil, idle
	if end.res.ignored {
		it.reasons.prepend(r.covered)
	}
	s.runs.remove(r)
	s.q.running--
	v := verdict{outcome: "success", term: s.term}
	switch {
	case it.left || !s.slots.Holds(it.slot):
		v.outcome = "left"
		s.q.forget(it)
	case isAbort(end.err):
		v.outcome = string(aborted)
		it.reasons.prepend(r.why)
		s.admit(it, high)
	case end.err == nil && end.res.pending:
		v.outcome = "pending"
		s.suspended(it)
	case end.err == nil:
		it.fail = nil
		if end.existed {
			s.history.add(r.key, r.facts.uid, end.at)
		}
		s.succeeded(it, r, end)
	default:
		f := s.failed(it, r, end)
		v.failed = f.public(s.controller, it)
		v.outcome = string(f.class)
	}
	return v
}

// suspended leaves an object to its running fiber, which triggers a reconciliation when it ends. An earlier failure
// remains recorded until then, and is not retried. The caller holds s.mu.
func (s *scheduler) suspended(it *item) {
	switch {
	case !it.reasons.empty():
		s.admit(it, high)
	case it.fail != nil || it.rate != nil:
		s.q.makeIdle(it)
	default:
		s.q.forget(it)
	}
	if it.fail != nil && it.fail.class == Stopped { // the fiber is the next attempt
		it.fail.class = Retryable
	}
}

// recovered forgets the failure of an object, whose running fiber has succeeded so far. It keeps the failure of a
// reconciliation since then, which is in back-off.
func (s *scheduler) recovered(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.q.items[k]
	if it == nil || it.fail == nil || it.state == waiting && it.dueFor == Retried {
		return
	}
	it.fail = nil
	if it.current == nil && it.state == idle {
		s.suspended(it)
		s.spawn()
	}
}

// succeeded schedules the next reconciliation after a success. The caller holds s.mu.
func (s *scheduler) succeeded(it *item, r *reconciliation, end completion) {
	delay := s.retries.afterSuccess(it.key, &it.requeues, r.facts, end.res)
	switch {
	case !it.reasons.empty():
		s.admit(it, high)
	case delay > 0 && end.exists:
		s.waitUntil(it, end.at.Add(delay), Scheduled)
	case end.exists && it.rate.recent(end.at):
		s.q.makeIdle(it) // keep the item: its recent starts count against the rate limit
	default:
		s.q.forget(it)
	}
}

// failed schedules the next reconciliation after a failure. The caller holds s.mu.
func (s *scheduler) failed(it *item, r *reconciliation, end completion) *failure {
	f := s.retries.failed(it.fail, r.facts, end.err, end.at)
	pending := it.reasons
	it.reasons = reasons{}
	it.reasons.prepend(r.why)
	for _, p := range pending.list {
		it.reasons.add(p)
	}
	if it.seen != nil && r.facts.differs(*it.seen) { // the spec has changed: the next reconciliation is not a retry
		it.fail = nil
		s.admit(it, high)
		return f
	}
	it.fail = f
	if delay, again := s.retries.afterFailure(it.key, f, end.res.after); again {
		s.waitUntil(it, end.at.Add(delay), Retried)
	} else {
		s.q.makeIdle(it)
	}
	return f
}

// lose forgets the objects of slots, except those that are being reconciled. The drain waits for these.
func (s *scheduler) lose(slots shard.Set) *handover.Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	drain := s.slots.Lose(slots) // under mu, so that the queue keeps nothing of the slots
	for _, it := range s.q.items {
		if it.current == nil && slots.Holds(it.slot) {
			s.q.forget(it)
		}
	}
	return drain
}

// stop stops the running reconciliations of slots.
func (s *scheduler) stop(slots shard.Set, cause error) {
	for _, r := range s.runningOf(slots) {
		r.stop(cause)
	}
}

func (s *scheduler) runningOf(slots shard.Set) (all []*reconciliation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := s.runs.first; r != nil; r = r.next {
		if slots.Holds(r.slot) {
			all = append(all, r)
		}
	}
	return all
}

// termOf returns the leadership context of the running reconciliation of an object; nil if none runs.
func (s *scheduler) termOf(k Key) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.q.items[k]; it != nil && it.current != nil {
		return it.current.term
	}
	return nil
}
