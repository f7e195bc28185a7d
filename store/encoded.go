package store

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/source"
)

// newRecord copies what is kept of an object: all but its managedFields. What it has in common with a prior version of the same
// key, if there is one, it shares.
func (s *Store) newRecord(o *source.Object, ver version, prior *Record) (*Record, error) {
	h := &o.Header
	r := &Record{st: s, ver: ver, gen: h.Generation, enc: o.Encoding, fin: uint16(min(h.Finalizers, math.MaxUint16))}
	if len(h.DeletionTimestamp) > 0 {
		t, err := time.Parse(time.RFC3339Nano, string(h.DeletionTimestamp))
		if err != nil {
			return nil, fmt.Errorf("cannot keep object %s/%s: deletion timestamp: %w", h.Namespace, h.Name, err)
		}
		r.del = t.Unix()
	}
	if prior != nil && prior.shape.matches(h) {
		r.shape = prior.shape
	} else {
		r.shape = s.intern.shape(h)
	}
	if prior != nil && prior.id.hasUID(h.UID) {
		r.id = prior.id
	} else {
		r.id = s.intern.ident(h, r.shape.ns)
	}
	n := len(o.Raw) - (h.ManagedFields.End - h.ManagedFields.Start)
	r.body.Set(o.AppendPruned(make([]byte, 0, n)))
	return r, nil
}

// contentSum is a hash of what matters in an object without managedFields, the same whether it came from a list (whose items
// lack kind and apiVersion) or from a watch. It is never 0.
func (s *Store) contentSum(enc source.Encoding, pruned []byte) uint64 {
	if enc == source.JSON {
		pruned = pruned[max(0, bytes.Index(pruned, metadataMember)):]
	}
	return max(1, maphash.Bytes(s.intern.seed, pruned))
}

// contentSum returns that of the record. Most are replaced before anybody asks. The buffer is for unpacking, and grows.
func (r *Record) contentSum(buf *[]byte) uint64 {
	if sum := r.sum.Load(); sum != 0 {
		return sum
	}
	if *buf == nil {
		*buf = []byte{} // without one, Append may return bytes that others read
	}
	raw, err := r.st.pack.Append((*buf)[:0], &r.body)
	if err != nil {
		return 0
	}
	*buf = raw
	sum := r.st.contentSum(r.enc, raw)
	r.sum.Store(sum)
	return sum
}

var metadataMember = []byte(`"metadata"`)

// AppendRaw appends the encoded object, as it is kept (without managedFields; see Encoding), to dst.
func (r *Record) AppendRaw(dst []byte) []byte {
	if dst == nil {
		dst = []byte{}
	}
	out, err := r.st.pack.Append(dst, &r.body)
	if err != nil { // our own bytes: memory is broken
		r.st.logger.Error("cannot unpack an object", "key", r.Key(), "error", err)
		return dst
	}
	return out
}

// Raw returns the encoded object as it is kept. The caller may change the slice.
func (r *Record) Raw() []byte { return r.AppendRaw(nil) }

// load returns the encoded object for decoding, which does not change it.
func (r *Record) load() ([]byte, error) { return r.st.pack.Append(nil, &r.body) }

// packSoon is told of each record that a list has staged, so that it becomes compact.
func (s *Store) packSoon(r *Record) { s.pack.Keep(&r.body, r.shape.siblings) }

// packLater is told of each record that a watch has brought.
func (s *Store) packLater(r *Record) { s.pack.KeepYoung(&r.body, r.shape.siblings) }

// superseded is told of each record that is not the latest any more.
func (s *Store) superseded(r *Record) {
	if r != nil {
		s.pack.Retire(&r.body)
	}
}

// bodies yields the encoded objects that are current.
func (s *Store) bodies(yield func(*pack.Item) bool) {
	for r := range s.root.Load().base.all() {
		if !yield(&r.body) {
			return
		}
	}
}

// MemoryStats say where the memory of a store is; the Go heap has the headers and indexes besides.
type MemoryStats struct {
	Live         int64 // bytes of encoded objects in the arena, which is not of the Go heap
	Mapped       int64 // bytes of the arena, free slots included
	Dictionaries int
	Unpacked     int64 // bytes of new objects that wait to be packed
}

// MemoryStats returns where the memory of the store is.
func (s *Store) MemoryStats() MemoryStats { return MemoryStats(s.pack.Stats()) }

// Flush makes all objects compact now; otherwise that happens in the background, in rounds.
func (s *Store) Flush() { s.pack.Flush() }
