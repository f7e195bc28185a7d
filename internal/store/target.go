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

// target holds the facts about a Go type that tell, without decoding, whether objects can be decoded into it.
type target struct {
	typ, pointer reflect.Type
	bit          uint32 // in Record.marks; 0: there are too many types

	once    sync.Once
	fits    bool // the type fits the objects of the store
	message bool
	json    decodable.Type
}

// targets are the types that readers have asked about.
type targets struct {
	byType sync.Map // reflect.Type: *target
	count  atomic.Uint32
}

func (all *targets) of(t reflect.Type) *target {
	if found, ok := all.byType.Load(t); ok {
		return found.(*target)
	}
	made := &target{typ: t, pointer: reflect.PointerTo(t)}
	if n := all.count.Add(1); n <= 32-markTypes {
		made.bit = 1 << (markTypes + n - 1)
	}
	found, _ := all.byType.LoadOrStore(t, made)
	return found.(*target)
}

// targetOf returns the facts about a type for willDecode.
func (d *decoder) targetOf(t reflect.Type) *target { return d.targets.of(t) }

// willDecode reports whether an object is certain to be decoded into a type without an error.
func (d *decoder) willDecode(e encoded, t *target) bool {
	t.once.Do(func() {
		if t.typ.Kind() != reflect.Struct {
			return
		}
		into := reflect.New(t.typ).Interface()
		if d.mayRefuse(into) {
			return
		}
		_, t.message = into.(protobuf.Message)
		if _, ok := into.(*unstructured.Unstructured); ok {
			t.json, t.fits = decodable.Object(), true
		} else if d.fits(into) == nil {
			t.json, t.fits = d.checker.Type(t.typ), true
		}
	})
	switch {
	case !t.fits:
		return false
	case e.enc == source.Protobuf:
		return t.message && d.protobuf.Decodes(e.raw, t.pointer)
	}
	return t.json.Takes(e.raw)
}
