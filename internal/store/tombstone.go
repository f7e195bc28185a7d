package store

import (
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The deletes of the overlay. After the answer to a delete said that an incarnation is gone, reads do not see it
// (C2), also if the watch is so far behind that it has yet to tell of its creation, or of that of those before it. So
// an entry has a set of the dead, which stays when another answer is laid over the same key.

// tomb is an incarnation that is gone. It stays until the watch has told of the deletion, or of something later, or a
// list omits it.
type tomb struct {
	uid   types.UID
	seen  bool    // the store has had it
	ver   version // the last one that was seen: of this key nothing older is read. None with opaque versions
	clock uint64
	since time.Time
}

func (d *tomb) is(r *Record) bool { return r.id.hasUID([]byte(d.uid)) }

// see notes that the store has had a version of it; ordered says whether versions say what was before and after.
func (d *tomb) see(ordered bool, r *Record) {
	d.seen = true
	if ordered && (d.ver.isZero() || r.ver.newer(d.ver)) {
		d.ver = r.ver
	}
}

// graveyard remembers the incarnations that the base has lost last: the watch is often faster than the answer to the
// delete, which then need not be waited for.
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
