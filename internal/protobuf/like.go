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
	v, l := reflect.ValueOf(into), reflect.ValueOf(like)
	dec := decoding{known: &d.known, left: len(data)}
	if dec.like(of.plan, data, v.UnsafePointer(), likeData, l.UnsafePointer()) != nil {
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

// like decodes b into the empty struct at p. The struct at lp was decoded from lb. The fields must be in the order of
// their numbers, as encoders write them, so that all values of one field are adjacent.
func (d *decoding) like(pl *plan, b []byte, p unsafe.Pointer, lb []byte, lp unsafe.Pointer) error {
	if d.depth++; d.depth > maxDepth {
		return errUnclear
	}
	var other run
	last := 0
	for len(b) > 0 {
		r, err := next(b)
		if err != nil || r.number <= last {
			return errUnclear
		}
		for other.number < r.number && len(lb) > 0 {
			before := other.number
			if other, err = next(lb); err != nil || other.number <= before {
				return errUnclear
			}
			lb = lb[len(other.bytes):]
		}
		if err := d.field(pl, &r, p, &other, lp); err != nil {
			return err
		}
		last, b = r.number, b[len(r.bytes):]
	}
	for len(lb) > 0 { // no later value may belong to a shared field
		before := other.number
		var err error
		if other, err = next(lb); err != nil || other.number <= before {
			return errUnclear
		}
		lb = lb[len(other.bytes):]
	}
	d.depth--
	return nil
}

// field decodes or shares all values of one field.
func (d *decoding) field(pl *plan, r *run, p unsafe.Pointer, other *run, lp unsafe.Pointer) error {
	if r.number >= len(pl.fields) || pl.fields[r.number].op == opNone {
		return nil
	}
	f := &pl.fields[r.number]
	if r.number != other.number {
		return d.message(pl, r.bytes, p)
	}
	at, there := unsafe.Add(p, f.off), unsafe.Add(lp, f.off)
	if bytes.Equal(r.bytes, other.bytes) {
		f.share(at, there)
		return nil
	}
	if f.op == opList+opMessage {
		return d.items(f, r.bytes, at, other.bytes, there)
	}
	if !r.single || !other.single || f.wire != lengthed {
		return d.message(pl, r.bytes, p)
	}
	switch f.op {
	case opMessage:
		return d.like(f.sub, r.data, at, other.data, there)
	case opPointer + opMessage:
		to, from := (*unsafe.Pointer)(at), *(*unsafe.Pointer)(there)
		if from == nil {
			return errUnclear
		}
		*to = reflect.New(f.typ).UnsafePointer()
		return d.like(f.sub, r.data, *to, other.data, from)
	}
	return d.message(pl, r.bytes, p)
}

// share copies the field at from to the field at to. Common kinds are copied without reflection.
func (f *field) share(to, from unsafe.Pointer) {
	switch {
	case f.op == opString:
		*(*string)(to) = *(*string)(from)
	case f.op == opBool:
		*(*bool)(to) = *(*bool)(from)
	case f.op == opInt32:
		*(*int32)(to) = *(*int32)(from)
	case f.op == opInt64:
		*(*int64)(to) = *(*int64)(from)
	case f.op >= opMap, f.op >= opPointer && f.op < opList: // a map is a pointer
		*(*unsafe.Pointer)(to) = *(*unsafe.Pointer)(from)
	case f.op >= opList:
		*(*list)(to) = *(*list)(from)
	default:
		reflect.NewAt(f.own, to).Elem().Set(reflect.NewAt(f.own, from).Elem())
	}
}

// items decodes b, the messages of a list, into the empty slice at p. The slice at lp was decoded from lb.
func (d *decoding) items(f *field, b []byte, p unsafe.Pointer, lb []byte, lp unsafe.Pointer) error {
	l, ll := (*list)(p), (*list)(lp)
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
		if l.len > ll.len {
			if err := d.message(f.sub, data, to); err != nil {
				return err
			}
			continue
		}
		other, size, err := first(lb)
		if err != nil {
			return err
		}
		lb = lb[size:]
		from := unsafe.Add(ll.data, at)
		if bytes.Equal(data, other) {
			reflect.NewAt(f.typ, to).Elem().Set(reflect.NewAt(f.typ, from).Elem())
		} else if err := d.like(f.sub, data, to, other, from); err != nil {
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
