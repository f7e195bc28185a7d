package store

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// The overlay of own writes: the answer to a write is laid over the store until the watch has brought it or something
// newer. It is kept as a second state, the merged one, which readers use; entries say where it differs from the base,
// and why. Because both change in one step, with one pointer, there is no moment at which a read sees neither.
type overlay struct {
	entries map[Key]*overlaid
	clock   uint64            // counts answers and lists, to tell which lists began after which answers
	dropped map[string]uint64 // by scope: when its entries were dropped, last
	past    graveyard
	bound   time.Duration // Options.OverlayBound, or its default
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

func (o *overlay) init(bound time.Duration) {
	if o.bound = bound; bound <= 0 {
		o.bound = defaultOverlayBound
	}
	o.entries, o.dropped = map[Key]*overlaid{}, map[string]uint64{}
}

func (o *overlay) tick() uint64 { o.clock++; return o.clock }

// hides says that a record is of a dead incarnation, or from before one.
func (ent *overlaid) hides(r *Record) bool {
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return d.is(r) || !d.ver.isZero() && d.ver.newer(r.ver) })
}

// outlived drops the dead that are past now that the base has gone from prior to rec, and notes that it has one of
// them.
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

// buried drops the dead of whose deletion the base was told, by that of rec.
func (ent *overlaid) buried(s *Store, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return d.is(rec) || prior != nil && d.is(prior) || !s.unordered && !d.ver.isZero() && rec.ver.newer(d.ver)
	})
}

// oldest returns since when reads have depended on an entry; not ok if nothing that they could see does.
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

// doubt says that a write was made that cannot be read here.
type doubt struct {
	ver   version // the scope has it when it is here; zero: it is not known
	clock uint64
	since time.Time
}

// doubted says whether reads of an entry ask the server. sc is its scope, nil if it is not watched any more.
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

// applied returns the next merged state after the base has taken st in place of prior. The caller holds s.mu.
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

// removed returns the next merged state after the base was told of a deletion, with the final state rec, and has lost
// prior, if it had any. The caller holds s.mu.
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
// With slots it is a list of these alone.
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
		default: // its deletion has been concluded: no later write can have succeeded
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

// dropScope forgets the entries of a namespace, or all for "": the history of the server went back, or it is not
// watched any more. The answer to a write that is under way may be of what was.
func (o *overlay) dropScope(ns string) {
	o.dropped[ns] = o.tick()
	maps.DeleteFunc(o.entries, func(_ Key, ent *overlaid) bool { return ns == "" || ent.ns == ns })
}

// expire forgets those of the dead that a scope was not told of for so long that its watch must have passed them, or
// never selects them. Nothing that is read depends on them. It says whether nothing is left.
func (o *overlay) expire(s *Store, ns string, before time.Time) (empty bool) {
	if len(o.entries) == 0 {
		return false
	}
	for k, ent := range o.entries {
		if ns == "" || ns == ent.ns {
			ent.doubted(s.scopes.of(ent.ns), s.overlay.bound)
			if ent.left && s.scopes.of(ent.ns).applied(ent.ver, nil) { // what the base has is right, and newer
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
	Overdue []Key // older than Options.OverlayBound, or not to be had when the write was answered: read these live
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

// Overdue says that an own write of this key has been laid over for longer than Options.OverlayBound without the
// watch bringing it, or could not be laid over: the reader should ask the server. It costs one atomic load while
// there is no own write.
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
