package executor

import (
	"bytes"
	"sync"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// Locks. Two operations of a namespace exclude each other when one of them locks a resource that the other one locks or
// is about. Of those, the one that was accepted first goes first.
//
// Nobody writes a lock down: that an operation wants it stands in its spec, and the order in which operations were
// accepted is that of their resource versions, which the API server gives out one by one. An operation that is about
// to make its first call has a place in that order; it goes on when the store knows everything up to that place and
// no unfinished operation before it excludes it. The place is the version at which it was picked up, and the write
// that records its first attempt holds for that version only. An ordinary operation, whose call need not be recorded
// first, has the version at which it was accepted (acceptance.go). So
//
//   - of two that exclude each other the later one knows of the earlier one, whichever replicas run them;
//   - everybody waits only for those before it, all of its locks at once, so there is no deadlock and nobody starves;
//   - where the API server has forgotten which came first, a leader decides by their times, and the next one lets no
//     lock go before it knows what that one has written (freshness);
//   - a lock ends with its operation, and there is nothing to clean up after a crash;
//   - it costs no request, but where the order is in doubt (acceptance.go).

// indexLocks finds the unfinished operations that lock a resource, by lockName.
const indexLocks = "fairlead.io/locks"

func lockName(namespace string, r v1alpha1.ResourceReference) string {
	return namespace + "/" + v1alpha1.OperationName(r.ResourceType, r.ResourceID)
}

// indexLocked adds the index to a store that does not have it.
func indexLocked(operations *store.Store) error {
	if operations.Snapshot().HasIndex(indexLocks) {
		return nil
	}
	var buffers sync.Pool
	return operations.AddIndex(indexLocks, func(r *store.Record) ([]string, error) {
		buf, _ := buffers.Get().(*[]byte)
		if buf == nil {
			buf = new([]byte)
		}
		defer buffers.Put(buf)
		*buf = r.AppendRaw((*buf)[:0])
		if !bytes.Contains(*buf, lockMember) {
			return nil, nil // nearly all: not worth decoding
		}
		op, err := store.As[v1alpha1.Operation](r)
		if err != nil || op.Terminal() {
			return nil, err
		}
		var names []string
		for locked := range op.Locks() {
			names = append(names, lockName(op.Namespace, locked))
		}
		if len(names) > 0 {
			names = append(names, lockersOf(op.Namespace))
		}
		return names, nil
	})
}

var lockMember = []byte(`"lock"`)

// turn finds out whether it is the turn of an operation. One that has made a call has had it.
func (e *Executor) turn(r *run, op *v1alpha1.Operation) course.Turn {
	if r.alone = false; r.entered {
		return course.Turn{}
	}
	if r.place = op.Status.AcceptedVersion; !e.store.Covers(op.Namespace, r.place) {
		// the run is told of the event that is missing, be it of a write of its own (writer)
		return course.Turn{Unknown: true}
	}
	now := e.store.Snapshot()
	if !e.isHere(r.key, now) {
		return course.Turn{Unknown: true}
	}
	if r.alone = e.isAlone(r, op, now); r.alone {
		return course.Turn{}
	}
	if e.mayBeMisled(r, op) {
		return course.Turn{Unknown: true}
	}
	if e.isBehind(r, op, now) { // nobody can come in between, so the others need no look
		return course.Turn{Still: true}
	}
	s := e.lastBefore(r, op, now)
	switch {
	case s.left == nil || s.enough():
		return course.Turn{Behind: s.last}
	case s.left.At == "":
		e.queue(r, store.Key{Namespace: s.left.Op.Namespace, Name: s.left.Op.Name})
		return course.Turn{Unknown: true}
	default:
		return course.Turn{Doubt: s.left}
	}
}

// mayBeMisled tells whether somebody who was accepted after a lock may have been let go before it by a predecessor of
// this executor (course.ComesLater), and the store does not show it yet. The run is woken when it does.
func (e *Executor) mayBeMisled(r *run, op *v1alpha1.Operation) bool {
	if course.Ordinary(op) || e.fresh.in(op.Namespace) {
		return false
	}
	e.queue(r, stale)
	return !e.fresh.in(op.Namespace)
}

// isAlone tells whether nobody in the namespace of an operation locks anything, the operation itself included. Who
// comes to do so comes after it.
func (e *Executor) isAlone(r *run, op *v1alpha1.Operation, now store.Snapshot) bool {
	if !course.Ordinary(op) || !nobodyLocks(op.Namespace, now) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLine(r)
	return true
}

// searchEnough is after how many others, each of which may have to be decoded, a search is content with the last one
// that it has found.
const searchEnough = 256

// search looks for the operation that another one comes right after.
type search struct {
	e      *Executor
	r      *run
	op     *v1alpha1.Operation
	last   *course.Predecessor
	at     string                     // the place of last
	left   *course.Doubt              // that has to be settled before; of several the one about the newest lock
	looked map[*store.Record]struct{} // those that were looked at
}

// lastBefore finds the operation that another one comes right after, nil if it is the first. Where very many lock the
// same, it is one of those before: when that one ends, it is looked for again.
func (e *Executor) lastBefore(r *run, op *v1alpha1.Operation, now store.Snapshot) *search {
	s := &search{e: e, r: r, op: op, looked: make(map[*store.Record]struct{})}
	s.among(op.Spec.ResourceReference, now)
	for locked := range op.Locks() {
		about := store.Key{Namespace: op.Namespace, Name: v1alpha1.OperationName(locked.ResourceType, locked.ResourceID)}
		if known, ok := now.Get(about); ok {
			s.consider(known, locked)
		}
		s.among(locked, now)
		if s.enough() {
			break
		}
	}
	return s
}

// among looks at those that lock a resource.
func (s *search) among(resource v1alpha1.ResourceReference, now store.Snapshot) {
	for known := range now.Index(indexLocks, lockName(s.op.Namespace, resource)) {
		if s.consider(known, resource); s.enough() {
			return
		}
	}
}

func (s *search) enough() bool { return s.last != nil && len(s.looked) >= searchEnough }

func (s *search) consider(known *store.Record, resource v1alpha1.ResourceReference) {
	if _, again := s.looked[known]; again {
		return
	}
	s.looked[known] = struct{}{}
	other, left := s.e.excluding(s.r, s.op, known)
	if left != nil && (s.left == nil || resourceversion.Older(s.left.At, left.At)) {
		s.left = left // the answer for the newest lock may be that for those before it, too
	}
	if other == nil {
		return
	}
	where := course.Place(other)
	if !other.PickedUp() {
		where = s.e.placeOf(other)
	}
	if s.last == nil || course.InOrder(s.last.Op, s.at, other, where) {
		s.last, s.at = &course.Predecessor{Key: known.Key(), Op: other, Resource: resource}, where
	}
}

// excluding returns the operation of a record, nil if it is over or comes after op, or is op itself, or if that is in
// doubt.
func (e *Executor) excluding(r *run, op *v1alpha1.Operation, known *store.Record) (*v1alpha1.Operation, *course.Doubt) {
	if known.Name() == op.Name {
		return nil, nil
	}
	other, err := store.As[v1alpha1.Operation](known)
	if err != nil || other.Terminal() {
		return nil, nil
	}
	first, doubts := e.goesFirst(other, op, r.recorded)
	if !first {
		return nil, doubts
	}
	return other, nil
}

// queue puts a run behind an operation, so that it is woken when that one changes. What was seen of it before is to be
// looked at again.
func (e *Executor) queue(r *run, behind store.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLine(r)
	l := e.lines[behind]
	if l == nil {
		l = &line{key: behind, runs: make(map[*run]struct{})}
		e.lines[behind] = l
	}
	l.runs[r] = struct{}{}
	r.line = l
	e.progress.locked++
}

// isBehind tells whether the operation that a run was put behind is still to be waited for. If not, the run is behind
// nobody.
func (e *Executor) isBehind(r *run, op *v1alpha1.Operation, now store.Snapshot) bool {
	e.mu.Lock()
	l := r.line
	e.mu.Unlock()
	if l == nil {
		return false
	}
	if known, ok := now.Get(l.key); ok {
		if other, _ := e.excluding(r, op, known); other != nil {
			return true
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLine(r)
	return false
}

// leaveLine takes a run out of its line; the caller holds mu.
func (e *Executor) leaveLine(r *run) {
	if r.line == nil {
		return
	}
	e.progress.locked--
	delete(r.line.runs, r)
	if len(r.line.runs) == 0 {
		delete(e.lines, r.line.key)
	}
	r.line = nil
}

// moveLine wakes the runs behind an operation that has changed or is gone.
func (e *Executor) moveLine(key store.Key) {
	var woken []*run
	e.mu.Lock()
	if l := e.lines[key]; l != nil {
		for r := range l.runs {
			r.missed = true
			woken = append(woken, r)
		}
	}
	e.mu.Unlock()
	for _, r := range woken {
		r.news.Set()
	}
}

// lockersOf is the name under which indexLocks has all unfinished operations of a namespace that lock anything.
func lockersOf(namespace string) string { return namespace + "/" }

// nobodyLocks tells whether no unfinished operation of a namespace locks anything.
func nobodyLocks(namespace string, now store.Snapshot) bool {
	for range now.Index(indexLocks, lockersOf(namespace)) {
		return false
	}
	return true
}
