package protobuf

import (
	"bytes"
	"reflect"
	"unsafe"
)

// UnmarshalLike is Unmarshal for a caller that holds another message of the type, like, and the data that it was
// decoded from. The two messages share every field that is byte for byte the same in both, also in the messages of a
// list that are at the same index. Neither may be modified afterwards. It suits versions of one object, and objects of
// one template: if only the status of a pod changes, only the status is decoded. With a nil like it is Unmarshal.
func (d *Decoder) UnmarshalLike(data []byte, into Message, likeData []byte, like Message) error {
	if like == nil || reflect.TypeOf(like) != reflect.TypeOf(into) {
		return d.Unmarshal(data, into)
	}
	of := d.of(reflect.TypeOf(into))
	if of.plan == nil || of.refused.Load() || of.checked.Load() < checks {
		return d.Unmarshal(data, into)
	}
	v := reflect.ValueOf(into)
	v.Elem().Set(reflect.ValueOf(like).Elem())
	of.plan.clearRest(v.UnsafePointer())
	dec := decoding{known: &d.known, left: len(data)}
	if dec.like(of.plan, data, v.UnsafePointer(), likeData) != nil {
		v.Elem().SetZero()
		return d.Unmarshal(data, into)
	}
	return nil
}

// run is the consecutive values of one field in a message.
type run struct {
	number int
	bytes  []byte // all of them, with their tags
	data   []byte // data of the first value, if it has a length
	single bool
}

// next returns the first non-empty run of a message.
func next(b []byte) (r run, err error) {
	for i := 0; i < len(b); {
		tag, n := uvarint(b[i:])
		if n <= 0 || tag < 8 || tag > 1<<31-1 {
			return run{}, errUnclear
		}
		number := int(tag >> 3)
		if i > 0 && number != r.number {
			return r, nil
		}
		data, size, err := after(b[i+n:], uint8(tag&7))
		if err != nil {
			return run{}, err
		}
		if r.single = i == 0; r.single {
			r.number, r.data = number, data
		}
		i += n + size
		r.bytes = b[:i]
	}
	return r, nil
}

// after returns the data of a length-delimited value without its length, and the encoded size of a value of any wire
// type.
func after(b []byte, wire uint8) (data []byte, size int, err error) {
	switch wire {
	case varint:
		_, size = uvarint(b)
	case lengthed:
		v, n := uvarint(b)
		if n <= 0 || v > uint64(len(b)-n) {
			return nil, 0, errUnclear
		}
		size = n + int(v)
		data = b[n:size]
	case fixed64:
		size = 8
	case fixed32:
		size = 4
	}
	if size <= 0 || size > len(b) {
		return nil, 0, errUnclear
	}
	return data, size, nil
}

// like decodes b into the struct at p, which is a copy of the struct that lb was decoded into. It changes the fields
// that differ. The fields must be in the order of their numbers, as encoders write them, so that all values of one
// field are adjacent.
func (d *decoding) like(pl *plan, b []byte, p unsafe.Pointer, lb []byte) error {
	if d.depth++; d.depth > maxDepth {
		return errUnclear
	}
	last, lastOther := 0, 0
	for len(b) > 0 {
		r, err := next(b)
		if err != nil || r.number <= last {
			return errUnclear
		}
		last, b = r.number, b[len(r.bytes):]
		if rest, ok := r.cut(lb); ok {
			lb, lastOther = rest, r.number
			continue
		}
		var other run // the values of the same field
		for len(lb) > 0 && lastOther < r.number {
			o, err := next(lb)
			if err != nil || o.number <= lastOther {
				return errUnclear
			}
			if o.number > r.number {
				break
			}
			lb, lastOther = lb[len(o.bytes):], o.number
			if o.number == r.number {
				other = o
			} else {
				pl.clear(o.number, p)
			}
		}
		if err := d.field(pl, &r, p, &other); err != nil {
			return err
		}
	}
	for len(lb) > 0 {
		o, err := next(lb)
		if err != nil || o.number <= lastOther {
			return errUnclear
		}
		lb, lastOther = lb[len(o.bytes):], o.number
		pl.clear(o.number, p)
	}
	d.depth--
	return nil
}

// cut returns b without its first run, if that is the same as r.
func (r *run) cut(b []byte) (rest []byte, ok bool) {
	n := len(r.bytes)
	if len(b) < n || !bytes.Equal(b[:n], r.bytes) {
		return nil, false
	}
	tag, _ := uvarint(b[n:])
	return b[n:], int(tag>>3) != r.number
}

// field decodes all values of one field. The field at p has the values of other, if it has the same number.
func (d *decoding) field(pl *plan, r *run, p unsafe.Pointer, other *run) error {
	if r.number >= len(pl.fields) || pl.fields[r.number].op == opNone {
		return nil
	}
	f := &pl.fields[r.number]
	if r.number != other.number {
		return d.message(pl, r.bytes, p)
	}
	at := unsafe.Add(p, f.off)
	if f.op == opList+opMessage {
		return d.items(f, r.bytes, at, other.bytes)
	}
	if r.single && other.single && f.wire == lengthed {
		switch f.op {
		case opMessage:
			return d.like(f.sub, r.data, at, other.data)
		case opPointer + opMessage:
			from := *(*unsafe.Pointer)(at)
			if from == nil {
				return errUnclear
			}
			to := reflect.New(f.typ)
			to.Elem().Set(reflect.NewAt(f.typ, from).Elem())
			*(*unsafe.Pointer)(at) = to.UnsafePointer()
			return d.like(f.sub, r.data, to.UnsafePointer(), other.data)
		}
	}
	f.clear(at)
	return d.message(pl, r.bytes, p)
}

// clear sets a field of the struct at p to zero.
func (pl *plan) clear(number int, p unsafe.Pointer) {
	if number < len(pl.fields) && pl.fields[number].op != opNone {
		f := &pl.fields[number]
		f.clear(unsafe.Add(p, f.off))
	}
}

// clear sets the field at p to zero. Common kinds are set without reflection.
func (f *field) clear(p unsafe.Pointer) {
	switch {
	case f.op == opString:
		*(*string)(p) = ""
	case f.op == opBool:
		*(*bool)(p) = false
	case f.op == opInt32:
		*(*int32)(p) = 0
	case f.op == opInt64:
		*(*int64)(p) = 0
	case f.op >= opMap, f.op >= opPointer && f.op < opList: // a map is a pointer
		*(*unsafe.Pointer)(p) = nil
	case f.op >= opList:
		*(*list)(p) = list{}
	default:
		reflect.NewAt(f.own, p).Elem().SetZero()
	}
}

// items decodes b, the messages of a list, into the slice at p, which has the messages of lb and may be shared.
func (d *decoding) items(f *field, b []byte, p unsafe.Pointer, lb []byte) error {
	l := (*list)(p)
	other := *l
	*l = list{}
	reflect.NewAt(f.own, p).Elem().Grow(count(b))
	for len(b) > 0 && l.len < l.cap {
		data, size, err := first(b)
		if err != nil {
			return err
		}
		b = b[size:]
		at := uintptr(l.len) * f.size
		to := unsafe.Add(l.data, at)
		l.len++ // Grow returns zeroed memory
		if l.len > other.len {
			if err := d.message(f.sub, data, to); err != nil {
				return err
			}
			continue
		}
		otherData, size, err := first(lb)
		if err != nil {
			return err
		}
		lb = lb[size:]
		reflect.NewAt(f.typ, to).Elem().Set(reflect.NewAt(f.typ, unsafe.Add(other.data, at)).Elem())
		if bytes.Equal(data, otherData) {
			continue
		}
		if err := d.like(f.sub, data, to, otherData); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return errUnclear
	}
	return nil
}

// first returns the data of the length-delimited value at the beginning of b, and the encoded size of its field.
func first(b []byte) (data []byte, size int, err error) {
	tag, n := uvarint(b)
	if n <= 0 || tag&7 != lengthed {
		return nil, 0, errUnclear
	}
	data, size, err = after(b[n:], lengthed)
	return data, n + size, err
}
