package store

import (
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The deletes of the overlay. After the answer to a delete said that an incarnation is gone, reads do not see it (C2), also
// if the watch is so far behind that it has yet to tell of its creation, or of that of those before it. So an entry has a set of the
// dead, which stays when another answer is laid over the same key.

// tomb is an incarnation that is gone. It stays until the watch has told of the deletion, or of something later, or a list omits it.
type tomb struct {
	uid   types.UID
	seen  bool    // the store has had it
	ver   version // the last one that was seen: of this key nothing older is read. None with opaque versions
	clock uint64
	since time.Time
}

func (d *tomb) is(r *Record) bool { return r.id.hasUID([]byte(d.uid)) }

// hides says that a record is of a dead incarnation, or from before one.
func (ent *overlaid) hides(r *Record) bool {
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return d.is(r) || !d.ver.isZero() && d.ver.newer(r.ver) })
}

// outlived drops the dead that are past now that the base has gone from prior to rec, and notes that it has one of them.
func (ent *overlaid) outlived(s *Store, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return !d.is(rec) && (prior != nil && d.is(prior) || !s.unordered && !d.ver.isZero() && rec.ver.newer(d.ver))
	})
	for i := range ent.dead {
		if d := &ent.dead[i]; d.is(rec) {
			d.see(s, rec)
		}
	}
}

// buried drops the dead of whose deletion the base was told, by that of rec.
func (ent *overlaid) buried(s *Store, rec, prior *Record) {
	ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool {
		return d.is(rec) || prior != nil && d.is(prior) || !s.unordered && !d.ver.isZero() && rec.ver.newer(d.ver)
	})
}

func (d *tomb) see(s *Store, r *Record) {
	d.seen = true
	if !s.unordered && (d.ver.isZero() || r.ver.newer(d.ver)) {
		d.ver = r.ver
	}
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

// PutDeleted makes reads say that an incarnation of an object is gone, after a delete was answered so; without a uid, the
// one that is read. One that the store does not know is remembered too: the watch may be behind, and tell of its creation only now.
func (s *Store) PutDeleted(k Key, uid types.UID) PutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopeOf(k.Namespace)
	if sc == nil {
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
		d.see(s, own)
		ent.evict()
	}
	switch {
	case known && d.is(told):
		d.see(s, told)
	case d.seen && known && s.unordered: // our write had made it invisible, and it is older
		ent.dead = append(ent.dead, tomb{uid: told.UID(), seen: true, clock: d.clock, since: d.since})
	case !d.seen && s.overlay.past.has(s, uid):
		return AlreadyKnown
	}
	if known || !d.seen || !sc.version.atLeast(own.ver) { // else the watch is past it
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

// expire forgets those of the dead that a scope was not told of for so long that its watch must have passed them, or never selects
// them. Nothing that is read depends on them. It says whether nothing is left.
func (o *overlay) expire(s *Store, ns string, before time.Time) (empty bool) {
	if len(o.entries) == 0 {
		return false
	}
	for k, ent := range o.entries {
		if ns == "" || ns == ent.ns {
			s.doubted(ent)
			if ent.left && s.isApplied(s.scopeOf(ent.ns), ent.ver, nil) { // what the base has is right, and newer
				ent.evict()
			}
			ent.dead = slices.DeleteFunc(ent.dead, func(d tomb) bool { return !d.seen && d.since.Before(before) })
			o.drop(k, ent)
		}
	}
	return len(o.entries) == 0
}

// graveyard remembers the incarnations that the base has lost last: the watch is often faster than the answer to the
// delete, which then need not be waited for.
type graveyard struct {
	uids []uint64 // hashes
	next int
}

const graves = 1024

func (g *graveyard) add(s *Store, id *ident) {
	if len(g.uids) < graves {
		g.uids = append(g.uids, id.hashUID(s.intern.seed))
		return
	}
	g.uids[g.next] = id.hashUID(s.intern.seed)
	g.next = (g.next + 1) % graves
}

func (g *graveyard) has(s *Store, uid types.UID) bool {
	id := ident{text: string(uid)}
	id.uidBits, id.canonUID = parseUID([]byte(uid))
	return slices.Contains(g.uids, id.hashUID(s.intern.seed))
}

func (i *ident) hashUID(seed maphash.Seed) uint64 {
	if i.canonUID {
		return maphash.Bytes(seed, i.uidBits[:])
	}
	return maphash.String(seed, i.text[i.nameLen:])
}
