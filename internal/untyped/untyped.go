// Package untyped decodes JSON objects into maps, as unstructured objects hold them: integers as int64, other numbers
// as float64.
//
// The results are those of sigs.k8s.io/json, which decodes every unusual input itself: invalid escapes, invalid UTF-8,
// and very deep or very large values. This package is faster because objects of a kind resemble each other. Known
// member names and values are not allocated again, and other strings share memory.
package untyped

import (
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/piece"
)

// Decoder decodes objects and remembers their short strings. The zero value is ready to use. It is safe for concurrent
// use.
type Decoder struct {
	words words
	trees trees
}

// Unmarshal decodes one JSON object. The caller owns the maps and lists, and the result does not refer to data.
func (d *Decoder) Unmarshal(data []byte) (map[string]any, error) {
	dec := decoding{words: &d.words, data: data}
	if dec.skip(); dec.at < len(data) && data[dec.at] == '{' {
		o, err := dec.object(0, 0)
		if dec.skip(); err == nil && dec.at == len(data) {
			return o, nil
		}
	}
	var o map[string]any
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &o)
	return o, err
}

// errUnusual makes the caller fall back to sigs.k8s.io/json.
var errUnusual = errors.New("unusual")

// maxDepth bounds the nesting of values. Deeper input is unusual.
const maxDepth = 100

// decoding is the state of one Unmarshal.
type decoding struct {
	words *words
	data  []byte
	at    int
	stack []any // items of the open lists
	piece piece.Of
	sharing
}

func (d *decoding) skip() {
	for d.at < len(d.data) {
		switch d.data[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// next returns the first byte after white space, or 0 at the end, with which no value begins.
func (d *decoding) next() byte {
	if d.at < len(d.data) && d.data[d.at] > ' ' {
		return d.data[d.at]
	}
	if d.skip(); d.at < len(d.data) {
		return d.data[d.at]
	}
	return 0
}

func (d *decoding) value(depth int) (any, error) {
	switch c := d.next(); c {
	case '{', '[':
		return d.nested(c, depth+1)
	case '"':
		s, err := d.raw()
		if err != nil {
			return nil, err
		}
		return d.words.value(s, &d.piece, len(d.data)-d.at), nil
	case 't':
		return true, d.literal("true")
	case 'f':
		return false, d.literal("false")
	case 'n':
		return nil, d.literal("null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return d.number()
		}
		return nil, errUnusual
	}
}

func (d *decoding) literal(text string) error {
	if len(d.data)-d.at < len(text) || string(d.data[d.at:d.at+len(text)]) != text {
		return errUnusual
	}
	d.at += len(text)
	return nil
}

// nested decodes an object or a list.
func (d *decoding) nested(bracket byte, depth int) (v any, err error) {
	v, at, text, items := d.known()
	switch {
	case v != nil:
		return v, nil
	case bracket == '{':
		v, err = d.object(depth, items)
	default:
		v, err = d.list(depth)
	}
	if err == nil && at != nil {
		at.tree.Store(&tree{string(text), v})
	}
	return v, err
}

// object decodes the object at d.at. members is an estimate of its size.
func (d *decoding) object(depth, members int) (map[string]any, error) {
	if depth > maxDepth {
		return nil, errUnusual
	}
	d.at++
	o := make(map[string]any, members)
	if d.next() == '}' {
		d.at++
		return o, nil
	}
	for {
		name, err := d.name()
		if err != nil {
			return nil, err
		}
		v, err := d.value(depth)
		if err != nil {
			return nil, err
		}
		o[d.words.name(name, &d.piece, len(d.data)-d.at)] = v
		switch d.next() {
		case ',':
			d.at++
		case '}':
			d.at++
			return o, nil
		default:
			return nil, errUnusual
		}
	}
}

// name returns the name of the member at d.at, and moves to its value.
func (d *decoding) name() ([]byte, error) {
	if d.next() != '"' {
		return nil, errUnusual
	}
	name, err := d.raw()
	if err != nil {
		return nil, err
	}
	if d.next() != ':' {
		return nil, errUnusual
	}
	d.at++
	return name, nil
}

func (d *decoding) list(depth int) ([]any, error) {
	if depth > maxDepth {
		return nil, errUnusual
	}
	d.at++
	if d.next() == ']' {
		d.at++
		return []any{}, nil
	}
	mine := len(d.stack)
	for {
		v, err := d.value(depth)
		if err != nil {
			return nil, err
		}
		d.stack = append(d.stack, v)
		switch d.next() {
		case ',':
			d.at++
		case ']':
			d.at++
			return d.items(mine), nil
		default:
			return nil, errUnusual
		}
	}
}

// items takes the items of the innermost open list from the stack. They begin at begin.
func (d *decoding) items(begin int) []any {
	items := slices.Clone(d.stack[begin:])
	clear(d.stack[begin:])
	d.stack = d.stack[:begin]
	return items
}

// raw returns the text of the string at d.at: a part of data, or a new slice if the string has escapes.
func (d *decoding) raw() ([]byte, error) {
	begin := d.at + 1
	for i := begin; i < len(d.data); i++ {
		switch c := d.data[i]; {
		case c == '"':
			d.at = i + 1
			return d.data[begin:i], nil
		case c == '\\', c >= utf8.RuneSelf:
			return d.odd(begin, i)
		case c < ' ':
			return nil, errUnusual
		}
	}
	return nil, errUnusual
}

// odd is raw for a string whose first escape or non-ASCII character is at i.
func (d *decoding) odd(begin, i int) ([]byte, error) {
	escaped := false
	for ; i < len(d.data); i++ {
		switch c := d.data[i]; {
		case c == '"':
			d.at = i + 1
			s := d.data[begin:i]
			if escaped {
				var own string
				if kjson.UnmarshalCaseSensitivePreserveInts(d.data[begin-1:i+1], &own) != nil {
					return nil, errUnusual
				}
				return []byte(own), nil
			}
			if !utf8.Valid(s) {
				return nil, errUnusual
			}
			return s, nil
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return nil, errUnusual
		}
	}
	return nil, errUnusual
}

// number decodes the number at d.at.
func (d *decoding) number() (any, error) {
	begin, i := d.at, d.at
	if d.data[i] == '-' {
		i++
	}
	first := i
	for i < len(d.data) && d.data[i] >= '0' && d.data[i] <= '9' {
		i++
	}
	switch digits := i - first; {
	case digits == 0, digits > 1 && d.data[first] == '0':
		return nil, errUnusual
	case i < len(d.data) && (d.data[i] == '.' || d.data[i] == 'e' || d.data[i] == 'E'):
		return d.float(begin, i)
	case digits > 18:
		return nil, errUnusual
	}
	n := int64(0)
	for _, c := range d.data[first:i] {
		n = n*10 + int64(c-'0')
	}
	if first > begin {
		n = -n
	}
	d.at = i
	return n, nil
}

// float decodes a number whose fraction or exponent begins at i.
func (d *decoding) float(begin, i int) (any, error) {
	if d.data[i] == '.' {
		i++
		from := i
		for i < len(d.data) && d.data[i] >= '0' && d.data[i] <= '9' {
			i++
		}
		if i == from {
			return nil, errUnusual
		}
	}
	if i < len(d.data) && (d.data[i] == 'e' || d.data[i] == 'E') {
		return nil, errUnusual
	}
	f, err := strconv.ParseFloat(string(d.data[begin:i]), 64)
	if err != nil {
		return nil, errUnusual
	}
	d.at = i
	return f, nil
}
