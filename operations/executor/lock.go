package executor

import (
	"bytes"
	"sync"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// Locks. Two operations of a namespace exclude each other when one of them locks a resource that the other one locks
// or is about. The one that was accepted first goes first.
//
// No lock is written anywhere. The spec of an operation names its locks. The order is that of the resource versions
// at which the API server accepted the operations. An operation that is about to make its first call has a place in
// that order. It proceeds when the store has everything up to that place and no unfinished operation before it
// excludes it. The place is the version at which the operation was picked up. The write that records its first
// attempt is conditional on that version. The place of an ordinary operation, whose call need not be recorded first,
// is the version at which it was accepted (acceptance.go). So
//
//   - of two operations that exclude each other, the later one knows the earlier one, whichever replicas run them;
//   - each operation waits only for earlier ones, for all of its locks at once, so there is neither deadlock nor
//     starvation;
//   - if the API server no longer has the versions, the leader decides by timestamps. The next leader lets no
//     operation with locks proceed before it knows the writes of its predecessor (freshness);
//   - a lock ends with its operation, so a crash leaves no lock behind;
//   - locks cost no request, except where the order is in doubt (acceptance.go).

// indexLocks is the index of the unfinished operations that lock a resource, by lockName.
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
			return nil, nil // nearly all operations: skip decoding
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

// turn decides whether an operation may make its first call. An operation that has made a call has had its turn.
func (e *Executor) turn(r *run, op *v1alpha1.Operation) course.Turn {
	if r.alone = false; r.entered {
		return course.Turn{}
	}
	if r.place = op.Status.AcceptedVersion; !e.store.Covers(op.Namespace, r.place) {
		// The missing event wakes the run, even that of its own write (see writer).
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
	if e.isBehind(r, op, now) { // no operation can come in between, so the search is not needed
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

// mayBeMisled reports whether a predecessor of this executor may have let a later operation proceed before op
// (course.ComesLater). It returns false once the store would show that. The run is woken when the store is fresh.
func (e *Executor) mayBeMisled(r *run, op *v1alpha1.Operation) bool {
	if course.Ordinary(op) || e.fresh.in(op.Namespace) {
		return false
	}
	e.queue(r, stale)
	return !e.fresh.in(op.Namespace)
}

// isAlone reports whether the operation is ordinary and no operation in its namespace holds a lock. An operation that
// locks anything later comes after it.
func (e *Executor) isAlone(r *run, op *v1alpha1.Operation, now store.Snapshot) bool {
	if !course.Ordinary(op) || !nobodyLocks(op.Namespace, now) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLine(r)
	return true
}

// searchEnough is the number of examined operations after which a search returns the last predecessor found so far.
// Each of them may have to be decoded.
const searchEnough = 256

// search looks for the direct predecessor of an operation.
type search struct {
	e      *Executor
	r      *run
	op     *v1alpha1.Operation
	last   *course.Predecessor
	at     string                     // the place of last
	left   *course.Doubt              // the doubt to settle first: that with the newest lock
	looked map[*store.Record]struct{} // records that were examined
}

// lastBefore finds the direct predecessor of an operation; nil if there is none. With very many locks on the same
// resource, it is any predecessor. When that one ends, the search is repeated.
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

// among examines the operations that lock a resource.
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
		s.left = left // its answer may settle those of older locks, too
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

// excluding returns the operation of a record. It returns nil if that operation has ended, comes after op, is op
// itself, or if the order is in doubt.
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

// queue puts a run behind an operation, so that it is woken when that one changes. The caller has to look at the
// operation again afterwards.
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

// isBehind reports whether the run still has to wait for the operation that it was put behind. If not, it takes the
// run out of its line.
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

// leaveLine takes a run out of its line. The caller holds mu.
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

// moveLine wakes the runs behind an operation that has changed or was deleted.
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

// lockersOf returns the name under which indexLocks has all unfinished operations of a namespace with a lock.
func lockersOf(namespace string) string { return namespace + "/" }

// nobodyLocks reports whether no unfinished operation of a namespace holds a lock.
func nobodyLocks(namespace string, now store.Snapshot) bool {
	for range now.Index(indexLocks, lockersOf(namespace)) {
		return false
	}
	return true
}
