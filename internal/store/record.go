package store

import (
	"reflect"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/cut"
	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Record is one stored version of one object: a fixed header and the encoded object, which is decoded on demand and
// shared by all readers of the record. A record never changes. It is safe for concurrent use and stays valid as long as
// it is referenced.
type Record struct {
	header
	codec *codec
	sum   atomic.Uint64 // see contentSum; 0: not known yet
	body  pack.Item     // the encoded object
	forms
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

// Finalizers returns the number of finalizers.
func (r *Record) Finalizers() int { return int(r.marks.Load() & markFinalizers) }

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

// load returns the encoded object for decoding. It may be shared, and must not be changed.
func (r *Record) load() (encoded, error) {
	raw, err := r.codec.pack.Append(nil, &r.body)
	return encoded{r.Encoding(), raw}, err
}

// read is load into a buffer, which may grow. The result is valid until the next use of buf.
func (r *Record) read(buf *[]byte) (encoded, error) {
	raw, err := r.codec.pack.Read(&r.body, buf)
	return encoded{r.Encoding(), raw}, err
}

// contentSum returns the hash of the record's content, or 0 if it cannot be read. It is computed on demand, since most
// records are replaced before it is needed. buf is for unpacking, and may grow.
func (r *Record) contentSum(buf *[]byte) uint64 {
	if sum := r.sum.Load(); sum != 0 {
		return sum
	}
	e, err := r.read(buf)
	if err != nil {
		return 0
	}
	sum := r.codec.contentSum(e)
	r.sum.Store(sum)
	return sum
}

// isSuperseded reports whether the record is not the latest of its object any more.
func (r *Record) isSuperseded() bool { return r.body.Retired() }

// As returns the object of a record as T: an API type, unstructured.Unstructured or metav1.PartialObjectMetadata. It is
// decoded at most once while a reader uses it. It is shared, and READ-ONLY.
func As[T any](r *Record) (*T, error) {
	if r != nil {
		for v := r.forms.list(); v != nil; v = v.next {
			if o, ok := v.obj.(*T); ok { // fast path for an object in the hot set
				r.use(v)
				return o, nil
			}
		}
	}
	o, err := r.As(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return o.(*T), nil
}

// As is the function [As] for a type that is known only at run time. For a struct type T it returns the *T that all
// readers of the record share. For a nil record, or a type that cannot be an object, the error is a *DecodeError.
func (r *Record) As(t reflect.Type) (any, error) { return r.AsLike(nil, t) }

// AsLike is [Record.As] for a caller that has another version of the object, which may be nil. If the object has to be
// decoded, and the other one is decoded as t already, both share equal parts.
func (r *Record) AsLike(other *Record, t reflect.Type) (any, error) {
	if r == nil {
		return nil, &DecodeError{Type: t, Err: errNoRecord}
	}
	if v := r.forms.held(t); v != nil {
		r.use(v)
		return v.obj, nil
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, &DecodeError{Key: r.Key(), Type: t, Err: errNoStruct}
	}
	return r.codec.shared(r, t, other)
}

// AsLater is [Record.As] for callers that may not need the object. If err is nil, a later As will succeed. For most
// objects AsLater can tell that from the bytes without decoding, and now may be nil. Otherwise it decodes and returns
// the object; the caller must keep it, so that no later error is possible.
//
// So an observer that uses only the key pays for no decoding, and a decoding error is known before an observer is
// called.
func (r *Record) AsLater(t reflect.Type) (now any, err error) {
	if r == nil || t == nil {
		return r.As(t)
	}
	target := r.codec.decoder.targetOf(t)
	if r.marks.Load()&target.bit != 0 {
		return nil, nil
	}
	if r.forms.held(t) != nil {
		return r.As(t)
	}
	buf := r.codec.buffer()
	defer r.codec.scratch.Put(buf)
	if e, err := r.read(buf); err != nil || !r.codec.decoder.willDecode(e, target) {
		return r.As(t)
	}
	r.marks.Or(target.bit)
	return nil, nil
}

// use marks a form that holds its object as used, when a reader gets it.
func (r *Record) use(v *form) {
	if !v.used.Load() || v.check != nil { // seldom, and this function is inlined
		r.firstUse(v)
	}
}

// firstUse is use for a form that is not marked, or that has a check.
func (r *Record) firstUse(v *form) {
	v.used.Store(true)
	if v.check != nil {
		r.codec.mutations.verify(&r.header, v, "")
	}
}

// DecodeInto decodes the object into obj, a pointer to any type that fits it, and overwrites its former content. A type
// without protobuf support is decoded from the JSON that the Go type of the Scheme encodes.
func (r *Record) DecodeInto(obj any) error {
	v := reflect.ValueOf(obj)
	if r == nil || v.Kind() != reflect.Pointer || v.IsNil() {
		return &DecodeError{Type: reflect.TypeOf(obj), Err: errNoRecord}
	}
	return r.codec.decodeInto(r, obj, v)
}

// AppendJSON appends the object as it is kept to dst, as JSON. An object that came as protobuf is decoded through the
// Scheme and encoded again. A store of metadata appends the metadata only.
func (r *Record) AppendJSON(dst []byte) ([]byte, error) {
	if r.Encoding() == source.JSON {
		return r.AppendRaw(dst), nil
	}
	return r.codec.appendJSON(r, dst)
}

// Verify checks whether a decoded form of the object was changed, if the store detects mutations, and reports a change.
// reader names the reader that had the object last; "" if it is not known.
func (r *Record) Verify(reader string) {
	for v := r.forms.list(); v != nil; v = v.next {
		if v.check != nil {
			r.codec.mutations.verify(&r.header, v, reader)
		}
	}
}
