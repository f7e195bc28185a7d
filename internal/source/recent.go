package source

import (
	"bytes"
	"hash/maphash"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// recent remembers the last recentSize changes that were passed to the sink. Servers send changes in the order of their
// versions. A change with an older version is usually a replay, but some proxies and aggregated servers reorder events.
// With recent the scope detects whether the sink has received such a change, or a newer one of the same object.
type recent struct {
	seed    maphash.Seed
	base    []byte // all changes up to this version have been passed to the sink
	changes []recentChange
	next    int // index of the last change
}

type recentChange struct {
	version []byte
	key     uint64
	deleted bool
}

const recentSize = 128

// reset forgets all changes: the sink has everything up to version.
func (r *recent) reset(version string) {
	if r.seed == (maphash.Seed{}) {
		r.seed = maphash.MakeSeed()
	}
	r.base = append(r.base[:0], version...)
	r.changes = r.changes[:0]
}

// isEmpty reports whether reset has not been called.
func (r *recent) isEmpty() bool { return r.base == nil }

// reached records that the sink has everything up to version, in addition to the remembered changes.
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

// add records a change that was passed to the sink. Calls are in the order of delivery.
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

// has reports whether exactly this version is among the last changes. For versions without order this is the only
// check. A deletion may carry the previous version of the object, so it is compared with other deletions only.
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

// hasDeletion reports whether exactly this deletion is among the last changes.
func (r *recent) hasDeletion(o *Object) bool {
	key := r.key(o)
	for _, c := range r.changes {
		if c.deleted && c.key == key && bytes.Equal(c.version, o.Header.ResourceVersion) {
			return true
		}
	}
	return false
}

// isMissing reports whether a change with an older version is new: neither it nor a newer change of the same object has
// been passed to the sink.
func (r *recent) isMissing(o *Object) bool {
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
