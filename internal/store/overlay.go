package store

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// overlay is the own writes that the watch has not brought yet. The answer to a write is laid over the store until the
// watch brings it or a newer version. The result is a second state, the merged one, which readers use. The entries say
// where it differs from the base, and why. Both states change in one step, with one pointer, so each read sees the
// answer or its successor.
//
// An overlay computes states and publishes none. The writer lock guards it: callers of its methods hold that lock.
type overlay struct {
	intern    *interner
	order     *order
	coverages coverages
	bound     time.Duration // Options.OverlayBound, or its default

	entries map[Key]*overlaid
	clock   uint64            // counts answers and lists, to order answers and the beginnings of lists
	dropped map[string]uint64 // by scope: the clock when its entries were last dropped
	past    graveyard
}

// overlaid is one difference between the merged state and the base: an answer, deleted incarnations, or both.
type overlaid struct {
	ns     string
	st     staged // the answered object; empty if it left the scope
	left   bool   // the answered object does not match the selectors of the watch
	asked  bool   // left is the result of a query: the server did not say how the object left
	ver    version
	clock  uint64
	since  time.Time
	dead   []tomb
	doubt  *doubt
	warned bool // reported as overdue
}

// answered reports whether there is an answer, which reads use instead of the base.
func (ent *overlaid) answered() bool { return ent.left || ent.st.rec != nil }

// evict forgets the answer.
func (ent *overlaid) evict() {
	ent.st, ent.left, ent.asked, ent.ver = staged{}, false, false, version{}
}

func (o *overlay) init(bound time.Duration, in *interner, ord *order, scopes coverages) {
	if o.bound = bound; bound <= 0 {
		o.bound = defaultOverlayBound
	}
	o.intern, o.order, o.coverages = in, ord, scopes
	o.entries, o.dropped = map[Key]*overlaid{}, map[string]uint64{}
}

// tick advances the clock of answers and lists, and returns it.
func (o *overlay) tick() uint64 { o.clock++; return o.clock }

// hides reports whether a record is of a deleted incarnation, or older than one.
func (ent *overlaid) hides(r *Record) bool {
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return d.is(r) || !d.ver.isZero() && d.ver.newer(r.ver) })
}

// outlived drops the tombstones that the change of the base from prior to rec makes obsolete. It marks the tombstone of
// rec as seen.
func (ent *overlaid) outlived(ord *order, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return !d.is(rec) && (prior != nil && d.is(prior) || !ord.opaque && !d.ver.isZero() && rec.ver.newer(d.ver))
	})
	for i := range ent.dead {
		if d := &ent.dead[i]; d.is(rec) {
			d.see(!ord.opaque, rec)
		}
	}
}

// buried drops the tombstones that a deletion in the base makes obsolete; rec is its final state.
func (ent *overlaid) buried(ord *order, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return d.is(rec) || prior != nil && d.is(prior) || !ord.opaque && !d.ver.isZero() && rec.ver.newer(d.ver)
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

// doubted reports whether readers of an entry should ask the server, and clears a resolved doubt.
func (o *overlay) doubted(ent *overlaid) bool {
	d := ent.doubt
	if d == nil {
		return false
	}
	cov := o.coverages.of(ent.ns) // nil: not watched any more
	over := cov == nil || !d.ver.isZero() && cov.version.atLeast(d.ver) ||
		d.ver.isZero() && time.Since(d.since) > o.bound
	if over {
		ent.doubt = nil
	}
	return !over
}

// applied returns the next merged state after the base has replaced prior by st.
func (o *overlay) applied(cur *root, base *state, st staged, prior *Record) *state {
	rec := st.rec
	if prior != nil && !prior.SameUID(rec) {
		o.lost(prior)
	}
	if len(o.entries) == 0 {
		return base
	}
	hidden := false
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.outlived(o.order, rec, prior)
		if ent.answered() && (!o.order.opaque && ent.ver.newer(rec.ver) || o.order.opaque && ent.hides(rec)) {
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
// record or nil.
func (o *overlay) removed(cur *root, base *state, rec, prior *Record) *state {
	o.lost(rec)
	if prior != nil && !prior.SameUID(rec) {
		o.lost(prior)
	}
	if len(o.entries) == 0 {
		return base
	}
	if ent := o.entries[rec.Key()]; ent != nil {
		ent.buried(o.order, rec, prior)
		own := ent.st.rec
		if ent.answered() && !ent.asked && (!o.order.opaque && ent.ver.newer(rec.ver) ||
			o.order.opaque && own != nil && !own.SameUID(rec)) {
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
	ns string, slots *shard.Set, begun uint64, list version, before, base *state,
) (ghosts []*Record) {
	for k, ent := range o.entries {
		if ns != "" && ns != ent.ns {
			continue
		}
		if slots != nil {
			if in, ok := ent.within(slots); !in || !ok {
				continue
			}
		}
		h := o.intern.hashOf(k)
		have, listed := base.get(h, k)
		had, known := before.get(h, k)
		ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
			if listed && d.is(have) {
				return false
			}
			return d.clock < begun || known && d.is(had) || !o.order.opaque && !d.ver.isZero() && list.atLeast(d.ver)
		})
		begunAfter := ent.clock < begun
		reached := list.atLeast(ent.ver) && !o.order.opaque
		settled := false
		switch {
		case ent.left:
			settled = reached || o.order.opaque && begunAfter
		case ent.st.rec == nil: // tombstones only
		case listed:
			settled = have.ver.atLeast(ent.ver) || o.order.opaque && begunAfter
		case reached || o.order.opaque && begunAfter:
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
		o.doubted(ent)
		o.drop(k, ent)
	}
	slices.SortFunc(ghosts, func(a, b *Record) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return ghosts
}

// rebuild returns a base with all entries laid over it.
func (o *overlay) rebuild(base *state) *state {
	if len(o.entries) == 0 {
		return base
	}
	merged, e := base.copy(), &trie.Edit{}
	for k, ent := range o.entries {
		if ent.st.rec != nil {
			merged.set(e, ent.st)
			continue
		}
		if have, ok := merged.get(o.intern.hashOf(k), k); ok && (ent.left || ent.hides(have)) {
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

// expire forgets unseen tombstones that are older than the bound: the watch of the scope has passed their objects, or
// never selects them. No visible object depends on them. It reports whether it has removed the last entry.
func (o *overlay) expire(ns string) (empty bool) {
	if len(o.entries) == 0 {
		return false
	}
	before := time.Now().Add(-o.bound)
	for k, ent := range o.entries {
		if ns == "" || ns == ent.ns {
			o.doubted(ent)
			if ent.left && o.coverages.of(ent.ns).applied(ent.ver, nil) { // the base is right, and newer
				ent.evict()
			}
			ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool { return !d.seen && d.since.Before(before) })
			o.drop(k, ent)
		}
	}
	return len(o.entries) == 0
}

// lost records that the base does not have an incarnation any more.
func (o *overlay) lost(r *Record) { o.past.add(o.intern.seed, r.id) }

// within reports whether an entry of the overlay is of an object in one of the slots. ok is false if the entry does
// not determine that.
func (ent *overlaid) within(set *shard.Set) (in, ok bool) {
	if set.Layout().By == shard.Namespace {
		return set.Has(ent.ns, ""), true
	}
	if rec := ent.st.rec; rec != nil {
		return rec.id.in(set), true
	}
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return set.Has("", d.uid) }), len(ent.dead) > 0
}

// release forgets the entries of objects that a scope does not hold any more: those in gone, and those whose entry
// determines that the slot is not among held.
func (o *overlay) release(ns string, held *shard.Set, gone map[Key]bool) {
	for k, ent := range o.entries {
		if ns != "" && ns != ent.ns {
			continue
		}
		if in, ok := ent.within(held); ok && !in || gone[k] {
			delete(o.entries, k)
		}
	}
}

// forget forgets the entry of a key.
func (o *overlay) forget(k Key) { delete(o.entries, k) }

// isEmpty reports whether there are no entries. The merged state is the base then.
func (o *overlay) isEmpty() bool { return len(o.entries) == 0 }

// wasDropped reports whether the entries of a scope were dropped after begun, by the clock.
func (o *overlay) wasDropped(ns string, begun uint64) bool { return o.dropped[ns] > begun }

// entry returns the entry of a key. It makes one if there is none.
func (o *overlay) entry(k Key) *overlaid {
	ent := o.entries[k]
	if ent == nil {
		ent = &overlaid{ns: k.Namespace}
		o.entries[k] = ent
	}
	return ent
}

// knows reports whether the entry of an answer is as new as the answer, or hides it.
func (o *overlay) knows(rec *Record) bool {
	ent := o.entries[rec.Key()]
	return ent != nil && (ent.ver.atLeast(rec.ver) || ent.hides(rec))
}

// isAnswered reports whether reads of a key use an answer.
func (o *overlay) isAnswered(k Key) bool {
	ent := o.entries[k]
	return ent != nil && ent.answered()
}

// answer lays an answer over cur, which is older. in is false for an object that the watch does not select; reads do
// not find it then.
func (o *overlay) answer(cur *root, st staged, in bool) (next root) {
	rec := st.rec
	if seen, ok := cur.merged.objects.Find(rec); ok {
		rec.adopt(seen)
	}
	ent := o.entry(rec.Key())
	ent.evict()
	ent.st, ent.ver, ent.clock, ent.since = st, rec.ver, o.tick(), time.Now()
	next = root{base: cur.base, merged: cur.merged.copy()}
	if in {
		next.merged.set(nil, st)
	} else {
		ent.st, ent.left = staged{}, true
		next.merged.delete(nil, rec)
	}
	return next
}

// deleted hides an incarnation that the server has deleted. An empty uid means the incarnation that reads see in cur.
// ok is false if reads do not see the incarnation, and will not see it.
func (o *overlay) deleted(cur *root, cov *coverage, k Key, uid types.UID) (next root, ok bool) {
	hash := o.intern.hashOf(k)
	if uid == "" {
		seen, visible := cur.merged.get(hash, k)
		if !visible {
			return next, false
		}
		uid = seen.UID()
	}
	d := tomb{uid: uid, clock: o.tick(), since: time.Now()}
	ent := o.entries[k]
	if ent == nil {
		ent = &overlaid{ns: k.Namespace}
	}
	if slices.ContainsFunc(ent.dead, func(o tomb) bool { return o.uid == uid }) {
		return next, false
	}
	have, known := cur.base.get(hash, k)
	own := ent.st.rec
	if own != nil && d.is(own) {
		d.see(!o.order.opaque, own)
		ent.evict()
	}
	switch {
	case known && d.is(have):
		d.see(!o.order.opaque, have)
	case d.seen && known && o.order.opaque: // the own write hid it, and it is older
		ent.dead = append(ent.dead, tomb{uid: have.UID(), seen: true, clock: d.clock, since: d.since})
	case !d.seen && o.past.has(o.intern.seed, uid):
		return next, false
	}
	if known || !d.seen || !cov.version.atLeast(own.ver) { // otherwise the watch has passed it
		ent.dead = append(ent.dead, d)
	}
	next = root{base: cur.base, merged: cur.merged}
	if seen, visible := cur.merged.get(hash, k); visible && ent.st.rec == nil && (seen == own || ent.hides(seen)) {
		next.merged = cur.merged.copy()
		next.merged.delete(nil, seen)
	}
	if o.entries[k] = ent; o.drop(k, ent) && len(o.entries) == 0 {
		next.merged = next.base
	}
	return next, true
}

// absent hides an object that the server did not have at version ver. ok is false if the store is as new already.
func (o *overlay) absent(cur *root, cov *coverage, k Key, ver version) (next root, ok bool) {
	have, known := cur.base.get(o.intern.hashOf(k), k)
	ent := o.entries[k]
	switch {
	case ver.isZero(), cov.applied(ver, have), ent != nil && ent.answered() && !ver.newer(ent.ver),
		ent == nil && !known:
		return next, false
	case ent == nil:
		ent = o.entry(k)
	}
	toCome := ent.answered() // the watch has not delivered the own write yet
	ent.st, ent.left, ent.asked, ent.ver, ent.clock, ent.since = staged{}, true, true, ver, o.tick(), time.Now()
	next = root{base: cur.base, merged: cur.merged.copy()}
	if seen, visible := cur.merged.get(o.intern.hashOf(k), k); visible {
		next.merged.delete(nil, seen)
	}
	if !known && !toCome { // no object to hide
		ent.evict()
		if o.drop(k, ent) && len(o.entries) == 0 {
			next.merged = next.base
		}
	}
	return next, true
}

// distrust makes an entry doubted until the scope has reached a version, or for the bound if ver is zero.
func (o *overlay) distrust(k Key, ver version) {
	ent := o.entry(k)
	if d := ent.doubt; d == nil || ver.isZero() || ver.newer(d.ver) { // a doubt without a version takes precedence
		ent.doubt = &doubt{ver: ver, clock: o.tick(), since: time.Now()}
	}
}

// trust ends a doubt that is not newer than began, by the clock. It reports whether it has removed the last entry.
func (o *overlay) trust(k Key, began uint64) (empty bool) {
	ent := o.entries[k]
	if ent == nil || ent.doubt == nil || ent.doubt.clock > began {
		return false
	}
	ent.doubt = nil
	return o.drop(k, ent) && len(o.entries) == 0
}

// records returns the answered objects that reads see.
func (o *overlay) records() (all []*Record) {
	for _, ent := range o.entries {
		if ent.st.rec != nil {
			all = append(all, ent.st.rec)
		}
	}
	return all
}

// addIndex adds the values of a new index to an answer that was staged before the index was added. The next merged
// state must have the record in the index, too.
func (o *overlay) addIndex(one staged, def *indexDef) {
	ent := o.entries[one.rec.Key()]
	if ent == nil || ent.st.rec != one.rec || slices.Contains(ent.st.defs, def) {
		return
	}
	ent.st = staged{
		rec: one.rec, defs: append(slices.Clone(ent.st.defs), def),
		values: append(slices.Clone(ent.st.values), one.valuesOf(def)),
	}
}

// removeIndex removes the values of an index.
func (o *overlay) removeIndex(def *indexDef) {
	for _, ent := range o.entries {
		ent.st = ent.st.without(def)
	}
}

// OverlayStats describe the overlay.
type OverlayStats struct {
	Entries int
	Oldest  time.Duration
	Overdue []Key // read these from the server: older than Options.OverlayBound, or in doubt
}

const defaultOverlayBound = time.Minute

// stats returns the number and age of the entries.
func (o *overlay) stats() OverlayStats {
	out := OverlayStats{Entries: len(o.entries)}
	now := time.Now()
	for k, ent := range o.entries {
		since, ok := ent.oldest()
		doubted := o.doubted(ent)
		if !ok && !doubted {
			continue
		}
		age := time.Duration(0)
		if ok {
			age = now.Sub(since)
		}
		out.Oldest = max(out.Oldest, age)
		if age > o.bound || doubted {
			out.Overdue = append(out.Overdue, k)
		}
	}
	slices.SortFunc(out.Overdue, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// overdue describes an entry that readers should not rely on.
type overdue struct {
	ver   version
	since time.Time
	late  bool // the watch has not delivered the own write within the bound
	first bool // late, and not reported before
}

// overdue returns whether readers of a key should ask the server.
func (o *overlay) overdue(k Key) (d overdue, yes bool) {
	ent := o.entries[k]
	if ent == nil {
		return d, false
	}
	doubted := o.doubted(ent)
	since, ok := ent.oldest()
	d = overdue{ver: ent.ver, since: since, late: !doubted && ok && time.Since(since) > o.bound}
	d.first = d.late && !ent.warned
	ent.warned = ent.warned || d.late
	return d, doubted || d.late
}
