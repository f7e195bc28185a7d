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

// AsLater is [Record.As] for who may not need the object: without an error, As will give it. The bytes alone tell that
// of most objects; then nothing is decoded, and the object is nil, unless it is at hand. One of which they do not tell
// is decoded now, and returned: hold it, and there is nothing left that could go wrong.
//
// So an observer that looks at the key pays for no decoding, and one that cannot be given its object is told before
// it is called.
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

// takes says whether an object is decoded into a type without an error for sure.
func (c *codec) takes(enc source.Encoding, l *laterOf, raw []byte) bool {
	l.once.Do(func() {
		if l.typ.Kind() != reflect.Struct {
			return
		}
		into := reflect.New(l.typ).Interface()
		if c.content.Transform != nil || c.content.readable(into) != nil { // code of the user's may refuse it
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

// laterOf is what is known of a type for AsLater.
type laterOf struct {
	typ, pointer reflect.Type
	bit          uint32 // of Record.marks; 0: there are too many types

	once    sync.Once
	fits    bool // it is one of the objects of the store
	untyped bool // unstructured.Unstructured
	message bool
	json    decodable.Type
}

// later remembers the types of AsLater.
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
