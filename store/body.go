package store

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/fairlead-io/fairlead/source"
)

// newRecord copies what is kept of an object: all but its managedFields.
func (s *Store) newRecord(o *source.Object, ver version) (*Record, error) {
	h := &o.Header
	r := &Record{st: s, ver: ver, gen: h.Generation, enc: o.Encoding, fin: uint16(min(h.Finalizers, math.MaxUint16)), sum: s.contentSum(o)}
	if len(h.DeletionTimestamp) > 0 {
		t, err := time.Parse(time.RFC3339Nano, string(h.DeletionTimestamp))
		if err != nil {
			return nil, fmt.Errorf("cannot keep object %s/%s: deletion timestamp: %w", h.Namespace, h.Name, err)
		}
		r.del = t.Unix()
	}
	r.shape = s.intern.shape(h)
	r.id = s.intern.ident(h, r.shape.ns)
	n := len(o.Raw) - (h.ManagedFields.End - h.ManagedFields.Start)
	r.body.heap.Store(&loose{data: o.AppendPruned(make([]byte, 0, n))})
	return r, nil
}

// contentSum is a hash of what matters in an object, the same whether it came from a list (whose items lack kind and
// apiVersion) or from a watch.
func (s *Store) contentSum(o *source.Object) uint64 {
	var h maphash.Hash
	h.SetSeed(s.intern.seed)
	from := 0
	if o.Encoding == source.JSON {
		from = max(0, bytes.Index(o.Raw, metadataMember))
	}
	if cut := o.Header.ManagedFields; !cut.Empty() && cut.Start >= from {
		h.Write(o.Raw[from:cut.Start])
		h.Write(o.Raw[cut.End:])
	} else {
		h.Write(o.Raw[from:])
	}
	return h.Sum64()
}

var metadataMember = []byte(`"metadata"`)

// AppendRaw appends the encoded object, as it is kept (without managedFields; see Encoding), to dst.
func (r *Record) AppendRaw(dst []byte) []byte {
	if dst == nil {
		dst = []byte{}
	}
	out, err := r.st.pack.load(r, dst)
	if err != nil { // our own bytes: memory is broken
		r.st.logger.Error("cannot unpack an object", "key", r.Key(), "error", err)
		return dst
	}
	return out
}

// Raw returns the encoded object as it is kept. The caller may change the slice.
func (r *Record) Raw() []byte { return r.AppendRaw(nil) }

// load returns the encoded object for decoding, which does not change it.
func (r *Record) load() ([]byte, error) { return r.st.pack.load(r, nil) }

// keep is told of each record that has been staged or published, so that it becomes compact.
func (s *Store) keep(r *Record) {
	if h := r.body.heap.Load(); h != nil {
		s.pack.add(r, len(h.data))
	}
}

// superseded is told of each record that is not the latest any more.
func (s *Store) superseded(r *Record) {
	if r != nil {
		s.pack.superseded(r)
		s.compactSoon()
	}
}
