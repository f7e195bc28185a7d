package store

import (
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/decodable"
	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
)

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
	l := r.codec.decoders.laterOf(t)
	if r.marks.Load()&l.bit != 0 {
		return nil, nil
	}
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.typ == t && v.obj != nil {
			return r.As(t)
		}
	}
	if raw, err := r.load(); err != nil || !r.codec.takes(r.Encoding(), l, raw) {
		return r.As(t)
	}
	r.marks.Or(l.bit)
	return nil, nil
}

// takes reports whether an object is certain to be decoded into a type without an error.
func (c *codec) takes(enc source.Encoding, l *laterOf, raw []byte) bool {
	l.once.Do(func() {
		if l.typ.Kind() != reflect.Struct {
			return
		}
		into := reflect.New(l.typ).Interface()
		if c.content.Transform != nil || c.content.readable(into) != nil { // user code may refuse it
			return
		}
		_, l.untyped = into.(*unstructured.Unstructured)
		_, l.message = into.(protobuf.Message)
		switch {
		case l.untyped:
			l.json = decodable.Object()
		case c.fits(into) == nil:
			l.json = c.decoders.json.Type(l.typ)
		default:
			return
		}
		l.fits = true
	})
	switch {
	case !l.fits:
		return false
	case enc == source.Protobuf:
		return l.message && c.decoders.protobuf.Decodes(raw, l.pointer)
	}
	return l.json.Takes(raw)
}

// laterOf caches the facts about a type that AsLater needs.
type laterOf struct {
	typ, pointer reflect.Type
	bit          uint32 // in Record.marks; 0: there are too many types

	once    sync.Once
	fits    bool // the type fits the objects of the store
	untyped bool // unstructured.Unstructured
	message bool
	json    decodable.Type
}

// later caches the types of AsLater.
type later struct {
	byType sync.Map // reflect.Type: *laterOf
	types  atomic.Uint32
}

func (l *later) laterOf(t reflect.Type) *laterOf {
	if known, ok := l.byType.Load(t); ok {
		return known.(*laterOf)
	}
	made := &laterOf{typ: t, pointer: reflect.PointerTo(t)}
	if n := l.types.Add(1); n <= 32-markTypes {
		made.bit = 1 << (markTypes + n - 1)
	}
	known, _ := l.byType.LoadOrStore(t, made)
	return known.(*laterOf)
}
