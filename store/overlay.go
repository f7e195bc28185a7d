package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/source"
)

// The overlay of own writes: the answer to a write is laid over the store until the watch has brought it or something newer.
// It is kept as a second state, the merged one, which readers use; entries say where it differs from the base, and why.
// Because both change in one step, with one pointer, there is no moment at which a read sees neither.
type overlay struct {
	entries map[Key]*overlaid
	clock   uint64            // counts answers and lists, to tell which lists began after which answers
	dropped map[string]uint64 // by scope: when its entries were dropped, last
	past    graveyard
}

// overlaid is one difference between the merged state and the base: an answer, incarnations that are gone, or both.
type overlaid struct {
	ns    string
	st    staged // the answered object; none if it left the scope
	left  bool   // the answered object does not match the selectors of the watch
	asked bool   // that was found out by asking: the server did not say how it left
	ver   version
	clock uint64
	since time.Time
	dead  []tomb
	doubt *doubt
	told  bool // reported as overdue
}

// answered says that there is an answer, which reads see (or see to have left) instead of what the base has.
func (ent *overlaid) answered() bool { return ent.left || ent.st.rec != nil }

// evict forgets the answer.
func (ent *overlaid) evict() {
	ent.st, ent.left, ent.asked, ent.ver = staged{}, false, false, version{}
}

// PutResult says what became of the answer to a write.
type PutResult uint8

// What may become of an answer.
const (
	// Overlaid means: reads see it from now on.
	Overlaid PutResult = iota + 1
	// AlreadyKnown means: the store has it, or something newer.
	AlreadyKnown
	// OutOfScope means: the store does not hold such objects (namespace, selector); reads of it are not affected, or say NotFound.
	OutOfScope
	// NeedsBarrier means: whether the store holds such objects cannot be decided here, or the history of the server went back while the
	// write was under way, so that the answer may be of one that is no more; see Store.Settle.
	NeedsBarrier
	// Unversioned means: the answer has no resource version.
	Unversioned
)

// String returns the name of the result.
func (r PutResult) String() string {
	return [...]string{"", "Overlaid", "AlreadyKnown", "OutOfScope", "NeedsBarrier", "Unversioned"}[min(r, Unversioned)]
}

func (o *overlay) init() {
	o.entries, o.dropped = map[Key]*overlaid{}, map[string]uint64{}
}

func (o *overlay) tick() uint64 { o.clock++; return o.clock }

// Put lays the answer to a successful create, update, patch or apply over the store.
func (s *Store) Put(enc source.Encoding, raw []byte) (PutResult, error) {
	rec, err := s.parse(enc, raw)
	if err != nil {
		return 0, err
	}
	return s.put(rec, putting{}), nil
}

// putting is how an answer is laid over the store.
type putting struct {
	w      *Write // that was answered, if it was announced
	record func() // is called, under the lock, before any early return
	sure   bool   // the watch selects the object
}

// parse makes a record of an answer.
func (s *Store) parse(enc source.Encoding, raw []byte) (*Record, error) {
	o := source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &o.Header); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	if len(o.Header.Name) == 0 {
		return nil, fmt.Errorf("cannot read the answer: %w", errNoName)
	}
	return s.newRecord(&o, parseVersion(o.Header.ResourceVersion), nil)
}

func (s *Store) put(rec *Record, how putting) PutResult {
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
	sc := s.scopeOf(rec.Namespace())
	lost := how.w != nil && sc != nil && s.overlay.dropped[sc.ns] > how.w.begun
	if how.record != nil && !lost {
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
	if s.isApplied(sc, rec.ver, prior) {
		return AlreadyKnown, true
	}
	k := rec.Key()
	ent := s.overlay.entries[k]
	if ent != nil && (ent.ver.atLeast(rec.ver) || ent.hides(rec)) {
		return AlreadyKnown, true
	}
	in, decided := s.inScope(rec)
	if how.sure {
		in, decided = true, true
	}
	if !decided {
		return NeedsBarrier, true
	}
	if !in && !known && (ent == nil || !ent.answered()) {
		return OutOfScope, true
	}
	if seen, ok := cur.merged.objects.Find(rec); ok {
		s.adopt(rec, seen)
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

// isApplied says whether the base has seen a version; the caller holds s.mu.
func (s *Store) isApplied(sc *scope, ver version, prior *Record) bool {
	if s.unordered {
		return prior != nil && prior.ver.equal(ver)
	}
	return sc.version.atLeast(ver) || prior != nil && prior.ver.atLeast(ver)
}

// applied returns the next merged state after the base has taken st in place of prior. The caller holds s.mu.
func (o *overlay) applied(s *Store, cur *root, base *state, st staged, prior *Record) *state {
	rec := st.rec
	if prior != nil && !prior.SameUID(rec) {
		o.past.add(s, prior.id)
	}
	if len(o.entries) == 0 {
		return base
	}
	hidden := false
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.outlived(s, rec, prior)
		if ent.answered() && (!s.unordered && ent.ver.newer(rec.ver) || s.unordered && ent.hides(rec)) {
			return cur.merged // an older change does not evict
		}
		ent.evict()
		if o.drop(rec.Key(), ent) && len(o.entries) == 0 {
			return base
		}
		hidden = ent.hides(rec)
	}
	merged := cur.merged.copy()
	if hidden {
		merged.delete(nil, rec)
	} else {
		merged.set(nil, st)
	}
	return merged
}

// removed returns the next merged state after the base was told of a deletion, with the final state rec, and has lost prior, if it had
// any. The caller holds s.mu.
func (o *overlay) removed(s *Store, cur *root, base *state, rec, prior *Record) *state {
	o.past.add(s, rec.id)
	if prior != nil && !prior.SameUID(rec) {
		o.past.add(s, prior.id)
	}
	if len(o.entries) == 0 {
		return base
	}
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.buried(s, rec, prior)
		own := ent.st.rec
		if ent.answered() && !ent.asked && (!s.unordered && ent.ver.newer(rec.ver) || s.unordered && own != nil && !own.SameUID(rec)) {
			return cur.merged // written after that deletion
		}
		ent.evict()
		if o.drop(rec.Key(), ent) && len(o.entries) == 0 {
			return base
		}
	}
	merged := cur.merged.copy()
	merged.delete(nil, rec)
	return merged
}

// drop forgets an entry that says nothing any more.
func (o *overlay) drop(k Key, ent *overlaid) bool {
	if ent.answered() || len(ent.dead) > 0 || ent.doubt != nil {
		return false
	}
	delete(o.entries, k)
	return true
}

// listed drops the entries that a complete list has settled, and returns the ghosts: objects that we created, that were
// deleted while nobody watched, and that no event will ever mention.
func (o *overlay) listed(s *Store, sc *scope, begun uint64, list version, before, base *state) (ghosts []*Record) {
	for k, ent := range o.entries {
		if sc.ns != "" && sc.ns != ent.ns {
			continue
		}
		h := s.intern.hashKey(k.Namespace, k.Name)
		have, listed := base.get(h, k)
		had, known := before.get(h, k)
		ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
			if listed && d.is(have) {
				return false
			}
			return d.clock < begun || known && d.is(had) || !s.unordered && !d.ver.isZero() && list.atLeast(d.ver)
		})
		begunAfter := ent.clock < begun
		reached := list.atLeast(ent.ver) && !s.unordered
		settled := false
		switch {
		case ent.left:
			settled = reached || s.unordered && begunAfter
		case ent.st.rec == nil: // tombstones only
		case listed:
			settled = have.ver.atLeast(ent.ver) || s.unordered && begunAfter
		case reached || s.unordered && begunAfter:
			settled = true
			if !known {
				ghosts = append(ghosts, ent.st.rec)
			}
		default: // its deletion has been concluded: no later write can have succeeded
			settled = known && had.SameUID(ent.st.rec)
		}
		if settled {
			ent.evict()
		}
		s.doubted(ent)
		o.drop(k, ent)
	}
	slices.SortFunc(ghosts, func(a, b *Record) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return ghosts
}

// rebuild returns a base with all entries laid over it.
func (o *overlay) rebuild(s *Store, base *state) *state {
	if len(o.entries) == 0 {
		return base
	}
	merged, e := base.copy(), &trie.Edit{}
	for k, ent := range o.entries {
		if ent.st.rec != nil {
			merged.set(e, ent.st)
			continue
		}
		if have, ok := merged.get(s.intern.hashKey(k.Namespace, k.Name), k); ok && (ent.left || ent.hides(have)) {
			merged.delete(e, have)
		}
	}
	return merged
}

// dropScope forgets the entries of a namespace, or all for "": the history of the server went back, or it is not watched any more. The
// answer to a write that is under way may be of what was.
func (o *overlay) dropScope(ns string) {
	o.dropped[ns] = o.tick()
	maps.DeleteFunc(o.entries, func(_ Key, ent *overlaid) bool { return ns == "" || ent.ns == ns })
}

// OverlayStats describe the overlay.
type OverlayStats struct {
	Entries int
	Oldest  time.Duration
	Overdue []Key // older than Options.OverlayBound, or not to be had when the write was answered: read these live
}

const defaultOverlayBound = time.Minute

// OverlayStats returns the number and age of the own writes that the watch has not brought yet.
func (s *Store) OverlayStats() OverlayStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := OverlayStats{Entries: len(s.overlay.entries)}
	now, bound := time.Now(), s.overlayBound()
	for k, ent := range s.overlay.entries {
		since, ok := ent.oldest()
		doubted := s.doubted(ent)
		if !ok && !doubted {
			continue
		}
		age := time.Duration(0)
		if ok {
			age = now.Sub(since)
		}
		out.Oldest = max(out.Oldest, age)
		if age > bound || doubted {
			out.Overdue = append(out.Overdue, k)
		}
	}
	slices.SortFunc(out.Overdue, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (s *Store) overlayBound() time.Duration {
	if s.opt.OverlayBound > 0 {
		return s.opt.OverlayBound
	}
	return defaultOverlayBound
}

// Overdue says that an own write of this key has been laid over for longer than Options.OverlayBound without the watch
// bringing it, or could not be laid over: the reader should ask the server. It costs one atomic load while there is no own write.
func (s *Store) Overdue(k Key) bool {
	if r := s.root.Load(); r.base == r.merged {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ent := s.overlay.entries[k]
	if ent == nil {
		return false
	}
	if s.doubted(ent) {
		return true
	}
	since, ok := ent.oldest()
	if !ok || time.Since(since) <= s.overlayBound() {
		return false
	}
	if !ent.told {
		ent.told = true
		s.logger.Warn("an own write is not confirmed by the watch", "key", k, "version", ent.ver.String(), "age", time.Since(since))
	}
	return true
}
