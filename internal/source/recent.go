package source

import (
	"bytes"
	"hash/maphash"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// recent remembers the last changes that were handed over. A server sends changes in the order of their versions; one
// that arrives with an older version is usually a replay, but some proxies and aggregated servers swap events. Whether
// the change has been seen, or is superseded by a newer one of the same object, is answered from here.
type recent struct {
	seed    maphash.Seed
	base    []byte // everything up to this version has been handed over
	changes []recentChange
	next    int // where the last one went
}

type recentChange struct {
	version []byte
	key     uint64
	deleted bool
}

const recentSize = 128

// reset begins anew: everything up to version has been handed over.
func (r *recent) reset(version string) {
	if r.seed == (maphash.Seed{}) {
		r.seed = maphash.MakeSeed()
	}
	r.base = append(r.base[:0], version...)
	r.changes = r.changes[:0]
}

// reached notes that everything up to version has been handed over, besides what it was told of.
func (r *recent) reached(version string) {
	if resourceversion.Older(r.base, version) {
		r.base = append(r.base[:0], version...)
	}
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
func (r *recent) add(t ChangeType, o *Object) {
	if r.changes == nil {
		r.changes = make([]recentChange, 0, recentSize)
	}
	if len(r.changes) < recentSize {
		r.changes = r.changes[:len(r.changes)+1]
		r.next = len(r.changes) - 1
	} else {
		r.next = (r.next + 1) % recentSize
		if old := r.changes[r.next].version; resourceversion.Older(r.base, old) {
			r.base = append(r.base[:0], old...)
		}
	}
	c := &r.changes[r.next]
	c.version, c.key, c.deleted = append(c.version[:0], o.Header.ResourceVersion...), r.key(o), t == Deleted
}

// has says that this very version was among the last changes. It is all that can be said of versions without order. A
// deletion may come with the version that the object had before, so it is only compared to other deletions.
func (r *recent) has(t ChangeType, version []byte) bool {
	if len(version) == 0 {
		return false
	}
	for _, c := range r.changes {
		if bytes.Equal(c.version, version) && c.deleted == (t == Deleted) {
			return true
		}
	}
	return t != Deleted && bytes.Equal(version, r.base)
}

// buried says that this very deletion was among the last changes.
func (r *recent) buried(o *Object) bool {
	key := r.key(o)
	for _, c := range r.changes {
		if c.deleted && c.key == key && bytes.Equal(c.version, o.Header.ResourceVersion) {
			return true
		}
	}
	return false
}

// missed says that a change with an older version than the last one has not been handed over, nor a newer one of the
// same object.
func (r *recent) missed(o *Object) bool {
	version := o.Header.ResourceVersion
	if order, ok := resourceversion.Compare(version, r.base); !ok || order <= 0 {
		return false
	}
	key := r.key(o)
	for _, c := range r.changes {
		if bytes.Equal(c.version, version) || c.key == key && !resourceversion.Older(c.version, version) {
			return false
		}
	}
	return true
}
