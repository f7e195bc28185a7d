package store

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// PutResult is the result of laying the answer to a write over the store.
type PutResult uint8

// The results of Put.
const (
	// Overlaid means that reads see the answer from now on.
	Overlaid PutResult = iota + 1
	// AlreadyKnown means that the store has this version or a newer one.
	AlreadyKnown
	// OutOfScope means that the store does not hold such objects, because of namespace, selector or slot. Reads of the
	// object are not affected or return ErrNotFound.
	OutOfScope
	// NeedsBarrier means that the answer is not laid over the store; see Store.Settle. The store cannot decide whether its
	// watch selects the object, or the answer lacks fields that readers need (see Options.Unstructured), or the server's
	// history was rolled back during the write.
	NeedsBarrier
	// Unversioned means that the answer has no resource version.
	Unversioned
)

// String returns the name of the result.
func (r PutResult) String() string {
	return [...]string{"", "Overlaid", "AlreadyKnown", "OutOfScope", "NeedsBarrier", "Unversioned"}[min(r, Unversioned)]
}

// putting holds the parameters of put.
type putting struct {
	w      *Write     // the answered write, if it was announced
	record func()     // called under the lock before any early return; may be nil
	sure   bool       // the watch is known to select the object
	fields fields.Set // of the object, for field selectors
}

// Put lays the answer to a successful create, update, patch or apply over the store.
func (s *Store) Put(enc source.Encoding, raw []byte) (PutResult, error) {
	rec, has, err := s.answered(enc, raw)
	if err != nil {
		return 0, err
	}
	return s.put(rec, putting{fields: has}), nil
}

func (s *Store) put(rec *Record, how putting) PutResult {
	if s.opt.Unstructured && rec.Encoding() == source.Protobuf && !how.sure && !rec.typeHasAll() {
		return NeedsBarrier
	}
	for st := stage(rec, s.indexDefs()); ; st = stage(rec, s.indexDefs()) {
		if result, ok := s.tryPut(st, how); ok {
			return result
		}
	}
}

func (s *Store) tryPut(st staged, how putting) (_ PutResult, ok bool) {
	rec := st.rec
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameDefs(st.defs, s.defs) {
		return 0, false
	}
	sc := s.scopes.of(rec.Namespace())
	lost := how.w != nil && sc != nil && s.overlay.dropped[sc.ns] > how.w.begun
	if how.record != nil && !lost && !(sc != nil && sc.elsewhere(rec)) {
		how.record()
	}
	if rec.ver.isZero() {
		return Unversioned, true
	}
	if sc == nil {
		return OutOfScope, true
	}
	if lost {
		return NeedsBarrier, true
	}
	cur := s.root.Load()
	prior, known := cur.base.objects.Find(rec)
	if sc.applied(rec.ver, prior) || sc.share.knew(rec) {
		return AlreadyKnown, true
	}
	k := rec.Key()
	ent := s.overlay.entries[k]
	if ent != nil && (ent.ver.atLeast(rec.ver) || ent.hides(rec)) {
		return AlreadyKnown, true
	}
	in, decided := s.selected.Load().selects(rec, how.fields)
	if how.sure {
		in, decided = true, true
	}
	if sc.elsewhere(rec) {
		in, decided = false, true
	}
	if !decided {
		return NeedsBarrier, true
	}
	if !in && !known && (ent == nil || !ent.answered()) {
		return OutOfScope, true
	}
	if seen, ok := cur.merged.objects.Find(rec); ok {
		rec.adopt(seen)
	}
	if ent == nil {
		ent = &overlaid{ns: k.Namespace}
		s.overlay.entries[k] = ent
	}
	ent.evict()
	ent.st, ent.ver, ent.clock, ent.since = st, rec.ver, s.overlay.tick(), time.Now()
	next := root{base: cur.base, merged: cur.merged.copy()}
	result := Overlaid
	if in {
		next.merged.set(nil, st)
	} else {
		result = OutOfScope
		ent.st, ent.left = staged{}, true
		next.merged.delete(nil, rec)
	}
	s.publish(next, nil)
	return result, true
}

// PutDeleted hides an incarnation of an object from reads after the server has answered its delete. An empty uid means
// the incarnation that reads see now. PutDeleted also remembers a uid that the store does not know, because the watch
// may be behind and deliver its creation later.
func (s *Store) PutDeleted(k Key, uid types.UID) PutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(k.Namespace)
	if sc == nil || sc.share.lacks(k.Namespace) {
		return OutOfScope
	}
	cur := s.root.Load()
	hash := s.intern.hashKey(k.Namespace, k.Name)
	if uid == "" {
		seen, visible := cur.merged.get(hash, k)
		if !visible {
			return AlreadyKnown
		}
		uid = seen.UID()
	}
	d := tomb{uid: uid, clock: s.overlay.tick(), since: time.Now()}
	ent := s.overlay.entries[k]
	if ent == nil {
		ent = &overlaid{ns: k.Namespace}
	}
	if slices.ContainsFunc(ent.dead, func(o tomb) bool { return o.uid == uid }) {
		return AlreadyKnown
	}
	told, known := cur.base.get(hash, k)
	own := ent.st.rec
	if own != nil && d.is(own) {
		d.see(!s.unordered, own)
		ent.evict()
	}
	switch {
	case known && d.is(told):
		d.see(!s.unordered, told)
	case d.seen && known && s.unordered: // the own write hid it, and it is older
		ent.dead = append(ent.dead, tomb{uid: told.UID(), seen: true, clock: d.clock, since: d.since})
	case !d.seen && s.overlay.past.has(s.intern.seed, uid):
		return AlreadyKnown
	}
	if known || !d.seen || !sc.version.atLeast(own.ver) { // otherwise the watch has passed it
		ent.dead = append(ent.dead, d)
	}
	next := root{base: cur.base, merged: cur.merged}
	if seen, visible := cur.merged.get(hash, k); visible && ent.st.rec == nil && (seen == own || ent.hides(seen)) {
		next.merged = cur.merged.copy()
		next.merged.delete(nil, seen)
	}
	if s.overlay.entries[k] = ent; s.overlay.drop(k, ent) && len(s.overlay.entries) == 0 {
		next.merged = next.base
	}
	s.publish(next, nil)
	return Overlaid
}

// putAbsent makes reads return not found for an object that the server did not have at version ver.
func (s *Store) putAbsent(k Key, ver version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(k.Namespace)
	cur := s.root.Load()
	have, ok := cur.base.get(s.intern.hashKey(k.Namespace, k.Name), k)
	ent := s.overlay.entries[k]
	switch {
	case sc == nil, ver.isZero(), sc.applied(ver, have), ent != nil && ent.answered() && !ver.newer(ent.ver):
		return // the store is as new already
	case ent == nil && !ok:
		return
	case ent == nil:
		ent = &overlaid{ns: k.Namespace}
		s.overlay.entries[k] = ent
	}
	toCome := ent.answered() // the watch has not delivered the own write yet
	ent.st, ent.left, ent.asked, ent.ver, ent.clock, ent.since = staged{}, true, true, ver, s.overlay.tick(), time.Now()
	next := root{base: cur.base, merged: cur.merged.copy()}
	if seen, visible := cur.merged.get(s.intern.hashKey(k.Namespace, k.Name), k); visible {
		next.merged.delete(nil, seen)
	}
	if !ok && !toCome { // no object to hide
		ent.evict()
		if s.overlay.drop(k, ent) && len(s.overlay.entries) == 0 {
			next.merged = next.base
		}
	}
	s.publish(next, nil)
}
