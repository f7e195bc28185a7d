package protobuf

import (
	"reflect"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Decodes reports whether Unmarshal decodes data into a message of type t, a pointer, without an error. It takes a
// fraction of the time and does not allocate. False means unknown. It returns false for a type that is not trusted yet
// or decodes itself, and for an unusual message.
func (d *Decoder) Decodes(data []byte, t reflect.Type) bool {
	of := d.of(t)
	return of.plan != nil && of.checked.Load() >= checks && !of.refused.Load() && d.decodes(of.plan, data, 0)
}

// decodes reports whether decoding.message would succeed.
func (d *Decoder) decodes(pl *plan, b []byte, depth int) bool {
	if depth >= maxDepth {
		return false
	}
	for i := 0; i < len(b); {
		tag, n := uvarint(b[i:])
		if n <= 0 || tag < 8 || tag > 1<<31-1 {
			return false
		}
		i += n
		var data []byte
		switch tag & 7 {
		case varint:
			if _, n = uvarint(b[i:]); n <= 0 {
				return false
			}
			i += n
		case lengthed:
			v, n := uvarint(b[i:])
			if n <= 0 || v > uint64(len(b)-i-n) {
				return false
			}
			i += n
			data = b[i : i+int(v)]
			i += int(v)
		case fixed64:
			i += 8
		case fixed32:
			i += 4
		default:
			return false
		}
		number := int(tag >> 3)
		if i > len(b) {
			return false
		}
		if number >= len(pl.fields) || pl.fields[number].op == opNone {
			continue
		}
		f := &pl.fields[number]
		if uint8(tag&7) != f.wire || !d.decodesField(f, data, depth) {
			return false
		}
	}
	return true
}

func (d *Decoder) decodesField(f *field, data []byte, depth int) bool {
	if f.op >= opMap {
		return d.decodesEntry(f.op-opMap, data)
	}
	switch f.op % opPointer {
	case opMessage:
		return d.decodes(f.sub, data, depth+1)
	case opQuantity:
		return d.known.has(data)
	case opTime:
		return isTime(data)
	case opCustom:
		return false
	}
	return true
}

// decodesEntry checks an entry of a map.
func (d *Decoder) decodesEntry(value op, data []byte) bool {
	for i := 0; i < len(data); {
		f, next, err := frame.NextField(data, i)
		if err != nil || f.Type != frame.Bytes || f.Number > 2 {
			return false
		}
		if f.Number == 2 && value == opQuantity && !d.known.has(data[f.Start:f.End]) {
			return false
		}
		i = next
	}
	return true
}

// isTime reports whether data is a message of seconds and nanoseconds.
func isTime(data []byte) bool {
	for i := 0; i < len(data); {
		f, next, err := frame.NextField(data, i)
		if err != nil || f.Type != frame.Varint || f.Number > 2 {
			return false
		}
		i = next
	}
	return true
}
