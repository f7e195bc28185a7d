package protobuf

import (
	"encoding/binary"
	"errors"
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/piece"
)

// Wire types.
const (
	varint   = 0
	fixed64  = 1
	lengthed = 2
	fixed32  = 5
)

// errUnclear makes the caller fall back to the type's own decoder. It does not leave the package.
var errUnclear = errors.New("not as expected")

// maxDepth bounds the nesting of messages. Deeper ones go to the type's own decoder.
const maxDepth = 200

// decoding is the state of one Unmarshal.
type decoding struct {
	known *quantities
	piece piece.Of
	left  int // estimated bytes of strings still to decode
	depth int
}

// message decodes b into the struct at p, in addition to the fields already set.
func (d *decoding) message(pl *plan, b []byte, p unsafe.Pointer) error {
	if d.depth++; d.depth > maxDepth {
		return errUnclear
	}
	for i := 0; i < len(b); {
		begin := i
		tag, n := uvarint(b[i:])
		if n <= 0 || tag < 8 || tag > 1<<31-1 {
			return errUnclear
		}
		i += n
		wire := uint8(tag & 7)
		var v uint64
		var data []byte
		switch wire {
		case varint:
			if v, n = uvarint(b[i:]); n <= 0 {
				return errUnclear
			}
			i += n
		case lengthed:
			if v, n = uvarint(b[i:]); n <= 0 || v > uint64(len(b)-i-n) {
				return errUnclear
			}
			i += n
			data = b[i : i+int(v)]
			i += int(v)
		case fixed64:
			i += 8
		case fixed32:
			i += 4
		default:
			return errUnclear
		}
		if i > len(b) {
			return errUnclear
		}
		number := int(tag >> 3)
		if number >= len(pl.fields) || pl.fields[number].op == opNone {
			continue
		}
		f := &pl.fields[number]
		at := unsafe.Add(p, f.off)
		if wire != f.wire {
			if f.op != opList+opInt64 || wire != lengthed || !packed(data, (*[]int64)(at)) {
				return errUnclear
			}
			continue
		}
		var err error
		switch {
		case f.op < opPointer:
			err = d.value(f, f.op, v, data, at)
		case f.op < opList:
			err = d.pointer(f, v, data, at)
		case f.op < opMap:
			err = d.item(f, v, data, at, b[begin:])
		default:
			err = d.entry(f, data, at)
		}
		if err != nil {
			return err
		}
	}
	d.depth--
	return nil
}

// value decodes one value into the memory at p.
func (d *decoding) value(f *field, o op, v uint64, data []byte, p unsafe.Pointer) error {
	switch o {
	case opString:
		*(*string)(p) = d.text(data)
	case opBytes:
		own := (*[]byte)(p)
		*own = append((*own)[:0], data...)
		if *own == nil {
			*own = []byte{}
		}
	case opBool:
		*(*bool)(p) = v != 0
	case opInt32:
		*(*int32)(p) = int32(v)
	case opInt64:
		*(*int64)(p) = int64(v)
	case opMessage:
		return d.message(f.sub, data, p)
	case opQuantity:
		return d.known.decode(data, (*resource.Quantity)(p))
	case opTime:
		return (*metav1.Time)(p).Unmarshal(data)
	case opCustom:
		return reflect.NewAt(f.typ, p).Interface().(Message).Unmarshal(data)
	}
	return nil
}

// pointer decodes a value into new memory, or a message into the existing struct if there is one.
func (d *decoding) pointer(f *field, v uint64, data []byte, at unsafe.Pointer) error {
	to := (*unsafe.Pointer)(at)
	switch o := f.op - opPointer; o {
	case opString:
		s := d.text(data)
		*to = unsafe.Pointer(&s)
	case opBool:
		is := v != 0
		*to = unsafe.Pointer(&is)
	case opInt32:
		n := int32(v)
		*to = unsafe.Pointer(&n)
	case opInt64:
		n := int64(v)
		*to = unsafe.Pointer(&n)
	default:
		if *to == nil {
			*to = reflect.New(f.typ).UnsafePointer()
		}
		return d.value(f, o, v, data, *to)
	}
	return nil
}

// list is the header of a slice of any type.
type list struct {
	data     unsafe.Pointer
	len, cap int
}

// item appends a value to a list. rest is the message from the value's tag on. It determines the final length of the
// list.
func (d *decoding) item(f *field, v uint64, data []byte, at unsafe.Pointer, rest []byte) error {
	l := (*list)(at)
	if l.len == l.cap {
		reflect.NewAt(f.own, at).Elem().Grow(count(rest))
	}
	l.len++ // Grow returns zeroed memory
	o := f.op - opList
	if o == opBytes {
		*(*[]byte)(unsafe.Add(l.data, uintptr(l.len-1)*f.size)) = append([]byte{}, data...)
		return nil
	}
	return d.value(f, o, v, data, unsafe.Add(l.data, uintptr(l.len-1)*f.size))
}

// count returns how many consecutive fields at the beginning of b have the tag of the first one.
func count(b []byte) (n int) {
	first, size := uvarint(b)
	if first&7 != lengthed {
		return 1
	}
	for i := 0; ; {
		tag, s := uvarint(b[i:])
		if s != size || tag != first {
			break
		}
		i += s
		length, s := uvarint(b[i:])
		if s <= 0 || length > uint64(len(b)-i-s) {
			break
		}
		i += s + int(length)
		n++
	}
	return max(n, 1)
}

// packed appends the numbers of a packed field.
func packed(data []byte, into *[]int64) bool {
	for i := 0; i < len(data); {
		v, n := uvarint(data[i:])
		if n <= 0 {
			return false
		}
		i += n
		*into = append(*into, int64(v))
	}
	return true
}

// entry adds an entry of the message to a map.
func (d *decoding) entry(f *field, data []byte, at unsafe.Pointer) error {
	var key, value []byte
	has := false
	for i := 0; i < len(data); {
		tag, n := uvarint(data[i:])
		if n <= 0 || tag != 1<<3|lengthed && tag != 2<<3|lengthed {
			return errUnclear
		}
		i += n
		v, n := uvarint(data[i:])
		if n <= 0 || v > uint64(len(data)-i-n) {
			return errUnclear
		}
		i += n
		if tag>>3 == 1 {
			key = data[i : i+int(v)]
		} else {
			value, has = data[i:i+int(v)], true
		}
		i += int(v)
	}
	// These map types have the same layout, whatever the names of the types are.
	switch f.op - opMap {
	case opString:
		m := (*map[string]string)(at)
		if *m == nil {
			makeMap(f, at)
		}
		(*m)[d.text(key)] = d.text(value)
	case opBytes:
		m := (*map[string][]byte)(at)
		if *m == nil {
			makeMap(f, at)
		}
		(*m)[d.text(key)] = append([]byte{}, value...)
	case opQuantity:
		m := (*map[string]resource.Quantity)(at)
		if *m == nil {
			makeMap(f, at)
		}
		var q resource.Quantity
		if has {
			if err := d.known.decode(value, &q); err != nil {
				return err
			}
		}
		(*m)[d.text(key)] = q
	}
	return nil
}

func makeMap(f *field, at unsafe.Pointer) {
	reflect.NewAt(f.own, at).Elem().Set(reflect.MakeMap(f.own))
}

func (d *decoding) text(b []byte) string {
	d.left -= len(b)
	return d.piece.Text(b, d.left+len(b))
}

// uvarint is binary.Uvarint with a fast path for one byte. binary.Uvarint accepts no tenth byte above 1.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}
