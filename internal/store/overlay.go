package store

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// overlay is the own writes that the watch has not brought yet. The answer to a write is laid over the store until the
// watch brings it or a newer version. The result is a second state, the merged one, which readers use. The entries say
// where it differs from the base, and why. Both states change in one step, with one pointer, so each read sees the
// answer or its successor.
type overlay struct {
	entries map[Key]*overlaid
	clock   uint64            // counts answers and lists, to order answers and the beginnings of lists
	dropped map[string]uint64 // by scope: the clock when its entries were last dropped
	past    graveyard
	bound   time.Duration // Options.OverlayBound, or its default
}

// overlaid is one difference between the merged state and the base: an answer, deleted incarnations, or both.
type overlaid struct {
	ns    string
	st    staged // the answered object; empty if it left the scope
	left  bool   // the answered object does not match the selectors of the watch
	asked bool   // left is the result of a query: the server did not say how the object left
	ver   version
	clock uint64
	since time.Time
	dead  []tomb
	doubt *doubt
	told  bool // reported as overdue
}

// answered reports whether there is an answer, which reads use instead of the base.
func (ent *overlaid) answered() bool { return ent.left || ent.st.rec != nil }

// evict forgets the answer.
func (ent *overlaid) evict() {
	ent.st, ent.left, ent.asked, ent.ver = staged{}, false, false, version{}
}

func (o *overlay) init(bound time.Duration) {
	if o.bound = bound; bound <= 0 {
		o.bound = defaultOverlayBound
	}
	o.entries, o.dropped = map[Key]*overlaid{}, map[string]uint64{}
}

func (o *overlay) tick() uint64 { o.clock++; return o.clock }

// hides reports whether a record is of a deleted incarnation, or older than one.
func (ent *overlaid) hides(r *Record) bool {
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return d.is(r) || !d.ver.isZero() && d.ver.newer(r.ver) })
}

// outlived drops the tombstones that the change of the base from prior to rec makes obsolete. It marks the tombstone of
// rec as seen.
func (ent *overlaid) outlived(s *Store, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return !d.is(rec) && (prior != nil && d.is(prior) || !s.unordered && !d.ver.isZero() && rec.ver.newer(d.ver))
	})
	for i := range ent.dead {
		if d := &ent.dead[i]; d.is(rec) {
			d.see(!s.unordered, rec)
		}
	}
}

// buried drops the tombstones that a deletion in the base makes obsolete; rec is its final state.
func (ent *overlaid) buried(s *Store, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return d.is(rec) || prior != nil && d.is(prior) || !s.unordered && !d.ver.isZero() && rec.ver.newer(d.ver)
	})
}

// oldest returns the time since when reads have depended on an entry. ok is false if no visible object depends on it.
func (ent *overlaid) oldest() (since time.Time, ok bool) {
	if ent.answered() {
		since, ok = ent.since, true
	}
	for _, d := range ent.dead {
		if d.seen && (!ok || d.since.Before(since)) {
			since, ok = d.since, true
		}
	}
	return since, ok
}

// doubt marks an entry whose object may lack an own write, so that readers should ask the server.
type doubt struct {
	ver   version // resolved when the scope has this version; zero: it is not known
	clock uint64
	since time.Time
}

// doubted reports whether readers of an entry should ask the server, and clears a resolved doubt. sc is the scope of
// the entry, nil if it is not watched any more.
func (ent *overlaid) doubted(sc *scope, bound time.Duration) bool {
	d := ent.doubt
	if d == nil {
		return false
	}
	over := sc == nil || !d.ver.isZero() && sc.version.atLeast(d.ver) || d.ver.isZero() && time.Since(d.since) > bound
	if over {
		ent.doubt = nil
	}
	return !over
}

// applied returns the next merged state after the base has replaced prior by st. The caller holds s.mu.
func (o *overlay) applied(s *Store, cur *root, base *state, st staged, prior *Record) *state {
	rec := st.rec
	if prior != nil && !prior.SameUID(rec) {
		o.past.add(s.intern.seed, prior.id)
	}
	if len(o.entries) == 0 {
		return base
	}
	hidden := false
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.outlived(s, rec, prior)
		if ent.answered() && (!s.unordered && ent.ver.newer(rec.ver) || s.unordered && ent.hides(rec)) {
			return cur.merged // an older change does not evict the answer
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

// removed returns the next merged state after a deletion in the base. rec is the final state, and prior the removed
// record or nil. The caller holds s.mu.
func (o *overlay) removed(s *Store, cur *root, base *state, rec, prior *Record) *state {
	o.past.add(s.intern.seed, rec.id)
	if prior != nil && !prior.SameUID(rec) {
		o.past.add(s.intern.seed, prior.id)
	}
	if len(o.entries) == 0 {
		return base
	}
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.buried(s, rec, prior)
		own := ent.st.rec
		if ent.answered() && !ent.asked && (!s.unordered && ent.ver.newer(rec.ver) ||
			s.unordered && own != nil && !own.SameUID(rec)) {
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

// drop removes an entry without content, and reports whether it did.
func (o *overlay) drop(k Key, ent *overlaid) bool {
	if ent.answered() || len(ent.dead) > 0 || ent.doubt != nil {
		return false
	}
	delete(o.entries, k)
	return true
}

// listed drops the entries that a complete list has settled. It returns the ghosts: objects that this program created,
// that were deleted before the watch saw them, and that no event will mention. If slots is not nil, the list is of
// these slots only.
func (o *overlay) listed(
	s *Store, sc *scope, slots *shard.Set, begun uint64, list version, before, base *state,
) (ghosts []*Record) {
	for k, ent := range o.entries {
		if sc.ns != "" && sc.ns != ent.ns {
			continue
		}
		if slots != nil {
			if in, told := ent.within(slots); !in || !told {
				continue
			}
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
		default: // the list implies its deletion: no later write can have succeeded
			settled = known && had.SameUID(ent.st.rec)
		}
		if settled {
			ent.evict()
		}
		ent.doubted(s.scopes.of(ent.ns), s.overlay.bound)
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

// dropScope forgets the entries of a namespace, or all if ns is "", after an epoch or when the namespace is not watched
// any more. It records the time, because the answer to a write in flight may be older.
func (o *overlay) dropScope(ns string) {
	o.dropped[ns] = o.tick()
	maps.DeleteFunc(o.entries, func(_ Key, ent *overlaid) bool { return ns == "" || ent.ns == ns })
}

// expire forgets unseen tombstones that are older than before: the watch of the scope has passed their objects, or
// never selects them. No visible object depends on them. It reports whether it has removed the last entry.
func (o *overlay) expire(s *Store, ns string, before time.Time) (empty bool) {
	if len(o.entries) == 0 {
		return false
	}
	for k, ent := range o.entries {
		if ns == "" || ns == ent.ns {
			ent.doubted(s.scopes.of(ent.ns), s.overlay.bound)
			if ent.left && s.scopes.of(ent.ns).applied(ent.ver, nil) { // the base is right, and newer
				ent.evict()
			}
			ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool { return !d.seen && d.since.Before(before) })
			o.drop(k, ent)
		}
	}
	return len(o.entries) == 0
}

// OverlayStats describe the overlay.
type OverlayStats struct {
	Entries int
	Oldest  time.Duration
	Overdue []Key // read these from the server: older than Options.OverlayBound, or in doubt
}

const defaultOverlayBound = time.Minute

// OverlayStats returns the number and age of the own writes that the watch has not brought yet.
func (s *Store) OverlayStats() OverlayStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := OverlayStats{Entries: len(s.overlay.entries)}
	now, bound := time.Now(), s.overlay.bound
	for k, ent := range s.overlay.entries {
		since, ok := ent.oldest()
		doubted := ent.doubted(s.scopes.of(ent.ns), s.overlay.bound)
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

// Overdue reports whether readers of k should ask the server: the watch has not brought an own write within
// Options.OverlayBound, or the answer could not be laid over the store. It costs one atomic load while there are no own
// writes.
func (s *Store) Overdue(k Key) bool {
	if r := s.root.Load(); r.base == r.merged {
		return false
	}
	s.mu.Lock()
	ent := s.overlay.entries[k]
	if ent == nil {
		s.mu.Unlock()
		return false
	}
	doubted := ent.doubted(s.scopes.of(ent.ns), s.overlay.bound)
	since, ok := ent.oldest()
	late := !doubted && ok && time.Since(since) > s.overlay.bound
	tell, version := late && !ent.told, ent.ver
	ent.told = ent.told || late
	s.mu.Unlock()
	if tell {
		s.logger.Warn("an own write is not confirmed by the watch", "key", k, "version", version.String(),
			"age", time.Since(since))
	}
	return doubted || late
}
