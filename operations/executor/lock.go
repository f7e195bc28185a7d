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

// locks decides which operation goes first. It has no state of its own besides the lines of waiting operations. It is
// safe for concurrent use.
type locks struct {
	store    *store.Store // of the operations, with indexLocks
	partial  bool         // the store holds the operations of some slots only
	accepted acceptances
	fresh    func(namespace string) bool // whether the store has everything that a predecessor may have written
	lines    *lines
	history  history
}

// turn decides whether an operation that has made no call yet may make its first one. n wakes it. recorded says that
// the stored status has picked up the operation. alone says that no operation of the namespace holds a lock.
func (l *locks) turn(n *news, op *v1alpha1.Operation, recorded bool) (t course.Turn, alone bool) {
	if !l.store.Covers(op.Namespace, op.Status.AcceptedVersion) {
		// The missing event wakes the run, even that of its own write (see writer).
		return course.Turn{Unknown: true}, false
	}
	now := l.store.Snapshot()
	if !l.isHere(op, now) {
		return course.Turn{Unknown: true}, false
	}
	if course.Ordinary(op) && nobodyLocks(op.Namespace, now) { // an operation that locks anything later comes after it
		l.lines.leave(n)
		return course.Turn{}, true
	}
	if l.mayBeMisled(n, op) {
		return course.Turn{Unknown: true}, false
	}
	if l.isBehind(n, op, recorded, now) { // no operation can come in between, so the search is not needed
		return course.Turn{Still: true}, false
	}
	s := l.lastBefore(op, recorded, now)
	switch {
	case s.doubt == nil || s.enough():
		return course.Turn{Behind: s.last}, false
	case s.doubt.At == "":
		l.lines.join(n, store.Key{Namespace: s.doubt.Op.Namespace, Name: s.doubt.Op.Name})
		return course.Turn{Unknown: true}, false
	default:
		return course.Turn{Doubt: s.doubt}, false
	}
}

// isHere reports whether a snapshot has an operation. A slot that is gained again may leave the store once more before
// it is listed there. All objects of its namespaces come and go together.
func (l *locks) isHere(op *v1alpha1.Operation, now store.Snapshot) bool {
	if !l.partial {
		return true
	}
	_, ok := now.Get(store.Key{Namespace: op.Namespace, Name: op.Name})
	return ok
}

// mayBeMisled reports whether a predecessor of this executor may have let a later operation proceed before op
// (course.ComesLater). It returns false once the store would show that. The run is woken when the store is fresh.
func (l *locks) mayBeMisled(n *news, op *v1alpha1.Operation) bool {
	if course.Ordinary(op) || l.fresh(op.Namespace) {
		return false
	}
	l.lines.join(n, stale)
	return !l.fresh(op.Namespace)
}

// searchEnough is the number of examined operations after which a search returns the last predecessor found so far.
// Each of them may have to be decoded.
const searchEnough = 256

// search looks for the direct predecessor of an operation.
type search struct {
	locks    *locks
	op       *v1alpha1.Operation
	recorded bool // the stored status has picked up op
	last     *course.Predecessor
	at       string                     // the place of last
	doubt    *course.Doubt              // the doubt to resolve first: that with the newest lock
	examined map[*store.Record]struct{} // records that were examined
}

// lastBefore finds the direct predecessor of an operation; nil if there is none. With very many locks on the same
// resource, it is any predecessor. When that one ends, the search is repeated.
func (l *locks) lastBefore(op *v1alpha1.Operation, recorded bool, now store.Snapshot) *search {
	s := &search{locks: l, op: op, recorded: recorded, examined: make(map[*store.Record]struct{})}
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

func (s *search) enough() bool { return s.last != nil && len(s.examined) >= searchEnough }

func (s *search) consider(known *store.Record, resource v1alpha1.ResourceReference) {
	if _, again := s.examined[known]; again {
		return
	}
	s.examined[known] = struct{}{}
	other, doubt := s.locks.excluding(s.op, known, s.recorded)
	if doubt != nil && (s.doubt == nil || resourceversion.Older(s.doubt.At, doubt.At)) {
		s.doubt = doubt // its answer may resolve those of older locks, too
	}
	if other == nil {
		return
	}
	where := course.Place(other)
	if !other.PickedUp() {
		where = s.locks.placeOf(other)
	}
	if s.last == nil || course.InOrder(s.last.Op, s.at, other, where) {
		s.last, s.at = &course.Predecessor{Key: known.Key(), Op: other, Resource: resource}, where
	}
}

// excluding returns the operation of a record. It returns nil if that operation has ended, comes after op, is op
// itself, or if the order is in doubt.
func (l *locks) excluding(
	op *v1alpha1.Operation, known *store.Record, recorded bool,
) (*v1alpha1.Operation, *course.Doubt) {
	if known.Name() == op.Name {
		return nil, nil
	}
	other, err := store.As[v1alpha1.Operation](known)
	if err != nil || other.Terminal() {
		return nil, nil
	}
	first, doubts := l.goesFirst(other, op, recorded)
	if !first {
		return nil, doubts
	}
	return other, nil
}

// isBehind reports whether an operation still has to wait for the one that it was put behind. If not, it takes the
// operation out of its line.
func (l *locks) isBehind(n *news, op *v1alpha1.Operation, recorded bool, now store.Snapshot) bool {
	key, waits := l.lines.behind(n)
	if !waits {
		return false
	}
	if known, ok := now.Get(key); ok {
		if other, _ := l.excluding(op, known, recorded); other != nil {
			return true
		}
	}
	l.lines.leave(n)
	return false
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
