package store

import (
	"iter"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/cut"
	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Record is one stored version of one object: a fixed header and the encoded object, which is decoded on demand and
// shared by all readers of the record. A record never changes. It is safe for concurrent use and stays valid as long as
// it is referenced.
type Record struct {
	codec *codec
	id    *ident
	shape *shape
	ver   version
	gen   int64
	del   int64         // Unix seconds of the deletion timestamp; 0: not being deleted
	sum   atomic.Uint64 // see contentSum; 0: not known yet
	body  pack.Item     // the encoded object
	forms atomic.Pointer[form]
	marks atomic.Uint32
	// dropped is the set of paths that were in the object and are not kept.
	dropped cut.Set
}

// The marks of a record: the number of finalizers, the encoding, and the types that it can certainly be decoded into
// (see AsLater), which are set later. They are bits to save memory, since there are as many records as objects.
const (
	markFinalizers = 1<<16 - 1
	markProtobuf   = 1 << 16
	markTypes      = 17 // from this bit on
)

func marksOf(enc source.Encoding, finalizers int) uint32 {
	marks := uint32(min(finalizers, markFinalizers))
	if enc == source.Protobuf {
		marks |= markProtobuf
	}
	return marks
}

// recordKeys compares records by their key.
type recordKeys struct{}

func (recordKeys) Hash(r *Record) uint64  { return r.id.hash }
func (recordKeys) Same(a, b *Record) bool { return a.id.sameKey(b.id) }

// Key returns the key of the object.
func (r *Record) Key() Key { return r.id.key() }

// Namespace returns the namespace of the object, empty for a cluster-scoped one.
func (r *Record) Namespace() string { return r.id.ns }

// Name returns the name of the object.
func (r *Record) Name() string { return r.id.name() }

// UID returns the uid of the object.
func (r *Record) UID() types.UID { return types.UID(r.id.uid()) }

// SameUID reports whether both records are of the same incarnation of an object.
func (r *Record) SameUID(o *Record) bool { return r.id.sameUID(o.id) }

// Version returns the resource version.
func (r *Record) Version() string { return r.ver.String() }

// Generation returns metadata.generation.
func (r *Record) Generation() int64 { return r.gen }

// Deleting reports whether the object has a deletion timestamp.
func (r *Record) Deleting() bool { return r.del != 0 }

// Finalizers returns the number of finalizers.
func (r *Record) Finalizers() int { return int(r.marks.Load() & markFinalizers) }

// Labels returns the labels for matching with a labels.Selector. It is shared and read-only.
func (r *Record) Labels() labels.Labels { return &r.shape.labels }

// Label returns the value of one label.
func (r *Record) Label(key string) (string, bool) { return r.shape.labels.Lookup(key) }

// AllLabels yields the labels in the order of their keys.
func (r *Record) AllLabels() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, l := range r.shape.labels {
			if !yield(l.Key, l.Value) {
				return
			}
		}
	}
}

// Owners returns the owner references. The slice is shared and read-only.
func (r *Record) Owners() []Owner { return r.shape.owners }

// Controller returns the owner reference that is marked as the controller.
func (r *Record) Controller() (Owner, bool) {
	for _, o := range r.shape.owners {
		if o.Controller {
			return o, true
		}
	}
	return Owner{}, false
}

// Encoding returns the encoding of Raw.
func (r *Record) Encoding() source.Encoding {
	if r.marks.Load()&markProtobuf != 0 {
		return source.Protobuf
	}
	return source.JSON
}

// Content returns the content of the store that the record is from.
func (r *Record) Content() Content { return r.codec.content.Content }

// Dropped returns the paths of Content.Drop that were in the object, and are not kept.
func (r *Record) Dropped() []string {
	if r.dropped == 0 {
		return nil
	}
	return r.codec.content.dropped(r.dropped)
}

// AppendRaw appends the encoded object, as it is kept (see Content and Encoding), to dst.
func (r *Record) AppendRaw(dst []byte) []byte {
	if dst == nil {
		dst = []byte{}
	}
	out, err := r.codec.pack.Append(dst, &r.body)
	if err != nil { // the store made these bytes: memory is broken
		r.codec.logger.Error("cannot unpack an object", "key", r.Key(), "error", err)
		return dst
	}
	return out
}

// Raw returns the encoded object as it is kept. The caller may change the slice.
func (r *Record) Raw() []byte { return r.AppendRaw(nil) }

// load returns a copy of the encoded object for decoding.
func (r *Record) load() ([]byte, error) { return r.codec.pack.Append(nil, &r.body) }

// Shares reports whether obj is the decoded object that all readers of the record share, and that must not be changed.
func (r *Record) Shares(obj any) bool {
	for v := r.forms.Load(); v != nil; v = v.next {
		if o := v.value(); o != nil && o == obj {
			return true
		}
	}
	return false
}

// adopt makes a new version of an object, which no reader sees yet, share the identity of the one before.
func (r *Record) adopt(prior *Record) {
	if prior != nil && r.id != prior.id && r.SameUID(prior) {
		r.id = prior.id
	}
}
