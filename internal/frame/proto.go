package frame

import (
	"encoding/binary"
	"math"
)

// Wire types of protobuf.
const (
	Varint  = 0
	Fixed64 = 1
	Bytes   = 2
	Fixed32 = 5

	startGroup, endGroup = 3, 4 // obsolete, but decoders must still skip them
)

// Field is one field of a protobuf message: its number, its wire type, and its value. The value is a number, or the
// range Start to End of the buffer. For Bytes the range excludes the length.
type Field struct {
	Number, Type int
	Value        uint64
	Start, End   int
}

// NextField reads the field that starts at b[i] and returns the index after it. A group counts as one field, with a
// type that is not listed above.
func NextField(b []byte, i int) (Field, int, error) {
	f, i, err := FieldHead(b, i)
	if err != nil && f.Type == startGroup {
		f.Start = i
		f.End, err = skipGroup(b, i)
		return f, f.End, err
	}
	if err != nil {
		return f, i, err
	}
	if f.End > len(b) {
		return f, i, ErrShort
	}
	return f, f.End, nil
}

// FieldHead reads the tag and the length or number of the field that starts at b[i]. The range may extend beyond the
// buffer. next is the index of the first byte of the value, or the index after a number.
func FieldHead(b []byte, i int) (f Field, next int, err error) {
	tag, i, err := ReadVarint(b, i)
	if err != nil {
		return f, i, err
	}
	if tag>>3 == 0 || tag>>3 > math.MaxInt32 {
		return f, i, Syntax(i, "field number")
	}
	f.Number, f.Type = int(tag>>3), int(tag&7)
	switch f.Type {
	case Varint:
		f.Start = i
		f.Value, i, err = ReadVarint(b, i)
		f.End = i
		return f, i, err
	case Bytes:
		n, i, err := ReadVarint(b, i)
		if err != nil {
			return f, i, err
		}
		if n > 1<<31-1 {
			return f, i, Syntax(i, "length below 2 GiB")
		}
		f.Start, f.End = i, i+int(n)
		return f, i, nil
	case Fixed64:
		f.Start, f.End = i, i+8
		return f, i, nil
	case Fixed32:
		f.Start, f.End = i, i+4
		return f, i, nil
	}
	return f, i, Syntax(i, "wire type 0, 1, 2 or 5")
}

// skipGroup returns the index after the group whose first field starts at b[i]. Like the generated decoders it accepts
// any field numbers in the group.
func skipGroup(b []byte, i int) (int, error) {
	for depth := 1; depth > 0; {
		tag, next, err := ReadVarint(b, i)
		if err != nil {
			return i, err
		}
		switch i = next; tag & 7 {
		case startGroup:
			depth++
		case endGroup:
			depth--
		case Varint:
			_, i, err = ReadVarint(b, i)
		case Fixed64:
			i += 8
		case Fixed32:
			i += 4
		case Bytes:
			var n uint64
			if n, i, err = ReadVarint(b, i); err == nil && n > uint64(len(b)) {
				err = ErrShort
			}
			i += int(min(n, uint64(len(b))))
		default:
			err = Syntax(i, "wire type up to 5")
		}
		if err == nil && i > len(b) {
			err = ErrShort
		}
		if err != nil {
			return i, err
		}
	}
	return i, nil
}

// ReadVarint reads the number that starts at b[i].
func ReadVarint(b []byte, i int) (uint64, int, error) {
	if i >= len(b) {
		return 0, i, ErrShort
	}
	if b[i] < 0x80 {
		return uint64(b[i]), i + 1, nil
	}
	v, n := binary.Uvarint(b[i:])
	switch {
	case n == 0:
		return 0, i, ErrShort
	case n < 0:
		return 0, i, Syntax(i, "number of at most 64 bits")
	}
	return v, i + n, nil
}
