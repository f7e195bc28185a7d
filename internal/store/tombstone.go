package store

import (
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Deletes in the overlay. After the answer to a delete, reads do not see that incarnation (C2), even if the watch has
// yet to deliver its creation, or that of earlier incarnations. So an entry has a set of tombstones, which stays when
// another answer is laid over the same key.

// tomb is a tombstone: a deleted incarnation. It stays until the watch delivers the deletion or a later change, or a
// list omits the object.
type tomb struct {
	uid   types.UID
	seen  bool    // the store has had it
	ver   version // the last version seen: older versions of the key are hidden. Zero with opaque versions
	clock uint64
	since time.Time
}

func (d *tomb) is(r *Record) bool { return r.id.hasUID([]byte(d.uid)) }

// see records that the store has had a version of the incarnation. ordered reports whether versions can be ordered.
func (d *tomb) see(ordered bool, r *Record) {
	d.seen = true
	if ordered && (d.ver.isZero() || r.ver.newer(d.ver)) {
		d.ver = r.ver
	}
}

// graveyard remembers the incarnations that the base has lost last. The watch is often faster than the answer to the
// delete, which then needs no tombstone.
type graveyard struct {
	uids []uint64 // hashes
	next int
}

const graves = 1024

func (g *graveyard) add(seed maphash.Seed, id *ident) {
	if len(g.uids) < graves {
		g.uids = append(g.uids, id.hashUID(seed))
		return
	}
	g.uids[g.next] = id.hashUID(seed)
	g.next = (g.next + 1) % graves
}

func (g *graveyard) has(seed maphash.Seed, uid types.UID) bool {
	id := ident{text: string(uid)}
	id.uidBits, id.canonUID = parseUID([]byte(uid))
	return slices.Contains(g.uids, id.hashUID(seed))
}
