package source

import "hash/maphash"

// recent remembers the last changes that were handed over. A server sends changes in the order of their versions; one that
// arrives with an older version is usually a replay, but some proxies and aggregated servers swap events. Whether the
// change has been seen, or is superseded by a newer one of the same object, is answered from here.
type recent struct {
	seed    maphash.Seed
	base    string // everything up to this version has been handed over
	changes []recentChange
	next    int // where the next one goes, when full
}

type recentChange struct {
	version string
	key     uint64
}

const recentSize = 128

// reset begins anew: everything up to version has been handed over.
func (r *recent) reset(version string) {
	if r.seed == (maphash.Seed{}) {
		r.seed = maphash.MakeSeed()
	}
	r.base, r.next = version, 0
	r.changes = r.changes[:0]
}

func (r *recent) key(o *Object) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	h.Write(o.Header.Namespace)
	h.WriteByte('/')
	h.Write(o.Header.Name)
	return h.Sum64()
}

// add notes a change that was handed over, in the order in which that was done.
func (r *recent) add(o *Object) {
	c := recentChange{string(o.Header.ResourceVersion), r.key(o)}
	if len(r.changes) < recentSize {
		r.changes = append(r.changes, c)
		return
	}
	if old := r.changes[r.next].version; older(r.base, old) {
		r.base = old
	}
	r.changes[r.next] = c
	r.next = (r.next + 1) % recentSize
}

// missed says that a change with an older version than the last one has not been handed over, nor a newer one of the same
// object.
func (r *recent) missed(o *Object) bool {
	version := o.Header.ResourceVersion
	if order, ok := compareVersions(version, r.base); !ok || order <= 0 {
		return false
	}
	key := r.key(o)
	for _, c := range r.changes {
		if c.version == string(version) || c.key == key && !older(c.version, version) {
			return false
		}
	}
	return true
}
