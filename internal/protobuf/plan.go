package protobuf

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plan describes how a message is decoded into a struct.
type plan struct {
	fields []field // by number; fields without op are skipped
	rest   []int   // offsets of the TypeMeta of the struct, which is not part of the message
}

// clearRest sets what is not part of the message to zero.
func (pl *plan) clearRest(p unsafe.Pointer) {
	for _, off := range pl.rest {
		*(*metav1.TypeMeta)(unsafe.Add(p, off)) = metav1.TypeMeta{}
	}
}

// field describes the struct field of one message field.
type field struct {
	op   op
	wire uint8
	off  uintptr
	typ  reflect.Type // of the value: the element of a pointer, list or map
	own  reflect.Type // of the struct's field
	size uintptr      // of typ
	sub  *plan        // of typ, for messages
}

type op uint8

const (
	opNone op = iota
	opString
	opBytes
	opBool
	opInt32
	opInt64
	opMessage  // a struct with a plan
	opQuantity // resource.Quantity
	opTime     // metav1.Time
	opCustom   // a type that decodes itself
	opPointer  // pointer to one of the above: op + opPointer
	opList     = 2 * opPointer
	opMap      = 3 * opPointer // with string keys
)

// planner makes and caches one plan for each type.
type planner struct {
	mu    sync.Mutex
	plans map[reflect.Type]*plan // nil: the type decodes itself
}

// of returns the plan of a struct type, or nil.
func (p *planner) of(t reflect.Type) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.make(t)
}

// make returns the plan of t. It stores the plan before it is complete, because a type may contain itself. The caller
// holds p.mu.
func (p *planner) make(t reflect.Type) *plan {
	if made, ok := p.plans[t]; ok {
		return made
	}
	if p.plans == nil {
		p.plans = map[reflect.Type]*plan{}
	}
	if !fits(t) {
		p.plans[t] = nil
		return nil
	}
	made := &plan{}
	p.plans[t] = made
	for i := range t.NumField() {
		sf := t.Field(i)
		number, ok := numberOf(sf)
		if !ok {
			made.rest = append(made.rest, int(sf.Offset)) // see fits
			continue
		}
		f := field{op: opOf(sf.Type), off: sf.Offset, own: sf.Type, typ: sf.Type}
		f.wire = f.op.wire()
		if f.op >= opPointer {
			f.typ = sf.Type.Elem()
		}
		f.size = f.typ.Size()
		if f.op%opPointer == opMessage {
			if f.sub = p.make(f.typ); f.sub == nil {
				f.op += opCustom - opMessage
			}
		}
		made.fields = slices.Grow(made.fields, max(0, number+1-len(made.fields)))[:max(number+1, len(made.fields))]
		made.fields[number] = f
	}
	return made
}

var (
	messageType  = reflect.TypeFor[Message]()
	typeMetaType = reflect.TypeFor[metav1.TypeMeta]()
	timeType     = reflect.TypeFor[metav1.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// maxNumber bounds the table of a type.
const maxNumber = 255

// fits reports whether t is a struct that a table can express.
func fits(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		number, ok := numberOf(f)
		switch {
		case !ok && f.Type == typeMetaType: // not part of the message
		case !ok, !f.IsExported(), number > maxNumber, opOf(f.Type) == opNone:
			return false
		}
	}
	return true
}

// wire returns the wire type of values. It ignores the wire type in the struct tag: some tags are wrong, and no other
// code reads them.
func (o op) wire() uint8 {
	if o >= opMap {
		return lengthed
	}
	switch o % opPointer {
	case opBool, opInt32, opInt64:
		return varint
	}
	return lengthed
}

// opOf returns the op of a field of type t, or opNone if the table cannot express it.
func opOf(t reflect.Type) op {
	if o := single(t); o != opNone || decodesItself(t) {
		return o
	}
	switch t.Kind() {
	case reflect.Pointer:
		if o := single(t.Elem()); o != opNone && o != opBytes {
			return opPointer + o
		}
	case reflect.Slice:
		switch o := single(t.Elem()); o {
		case opNone, opBool, opInt32:
		default:
			return opList + o
		}
	case reflect.Map:
		if single(t.Key()) != opString {
			return opNone
		}
		switch o := single(t.Elem()); o {
		case opString, opBytes, opQuantity:
			return opMap + o
		}
	}
	return opNone
}

// single returns the op of one value of type t.
func single(t reflect.Type) op {
	switch {
	case t == timeType:
		return opTime
	case t == quantityType:
		return opQuantity
	case decodesItself(t):
		if t.Kind() == reflect.Struct {
			return opMessage // or opCustom, if it has no plan
		}
		return opNone // a list or map type that is a message
	}
	switch t.Kind() {
	case reflect.String:
		return opString
	case reflect.Bool:
		return opBool
	case reflect.Int32:
		return opInt32
	case reflect.Int64:
		return opInt64
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return opBytes
		}
	}
	return opNone
}

func decodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(messageType) }

// numberOf returns the number of a field from its struct tag.
func numberOf(f reflect.StructField) (int, bool) {
	_, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
	text, _, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(text)
	return number, err == nil && number > 0
}
