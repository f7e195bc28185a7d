package savefile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
)

// maxField bounds the bytes that a Decoder allocates for a damaged length.
const maxField = 64 << 20

// Encoder writes fields. After an error it writes no more, and Write returns the error.
type Encoder struct {
	w   io.Writer
	buf []byte
	err error
}

// Number writes a number.
func (e *Encoder) Number(n uint64) {
	e.buf = binary.AppendUvarint(e.buf[:0], n)
	e.write(e.buf)
}

// Field writes the length of b and then b.
func (e *Encoder) Field(b []byte) {
	e.Number(uint64(len(b)))
	e.write(b)
}

// Text writes the length of s and then s.
func (e *Encoder) Text(s string) { e.Field([]byte(s)) }

func (e *Encoder) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

// Decoder reads fields in the order in which they were written. After an error it returns zero values; see Err.
type Decoder struct {
	r   *bufio.Reader
	buf bytes.Buffer // the last field
	err error
}

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Number reads a number.
func (d *Decoder) Number() uint64 {
	if d.err != nil {
		return 0
	}
	var n uint64
	if n, d.err = binary.ReadUvarint(d.r); d.err != nil {
		return 0
	}
	return n
}

// Field reads bytes, which are valid until the next call.
func (d *Decoder) Field() []byte {
	n := d.Number()
	if d.err == nil && n > maxField {
		d.err = ErrDamaged
	}
	if d.err != nil {
		return nil
	}
	d.buf.Reset()
	d.buf.Grow(int(min(n, 1<<16))) // the length may be corrupt, so grow as bytes arrive
	if _, d.err = io.CopyN(&d.buf, d.r, int64(n)); d.err != nil {
		return nil
	}
	return d.buf.Bytes()
}

// Text reads a string.
func (d *Decoder) Text() string { return string(d.Field()) }
