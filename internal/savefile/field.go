package savefile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
)

// maxField bounds what a damaged length can make a Decoder allocate at once.
const maxField = 64 << 20

// Encoder writes fields. After an error it does nothing more; Write returns the error.
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

// Field writes bytes, with their length before them.
func (e *Encoder) Field(b []byte) {
	e.Number(uint64(len(b)))
	e.write(b)
}

// Text writes a text, with its length before it.
func (e *Encoder) Text(s string) { e.Field([]byte(s)) }

func (e *Encoder) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

// Decoder reads fields in the order in which they were written. After an error it gives zero values; see Err.
type Decoder struct {
	r   *bufio.Reader
	buf bytes.Buffer // of the last field
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

// Field reads bytes, which are valid until the next field.
func (d *Decoder) Field() []byte {
	n := d.Number()
	if d.err == nil && n > maxField {
		d.err = ErrDamaged
	}
	if d.err != nil {
		return nil
	}
	d.buf.Reset()
	d.buf.Grow(int(min(n, 1<<16))) // more only as it comes: the length may be wrong
	if _, d.err = io.CopyN(&d.buf, d.r, int64(n)); d.err != nil {
		return nil
	}
	return d.buf.Bytes()
}

// Text reads a text.
func (d *Decoder) Text() string { return string(d.Field()) }
