package source

import (
	"strconv"
	"unicode/utf8"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// cursor iterates over the members of the object that starts at b[i]. The caller switches on name and moves i past the
// value:
//
//	c := cursor{b: b, i: i}
//	for c.next(h) {
//		switch string(c.name) {
//		…
//			c.i, c.err = …
//		}
//	}
type cursor struct {
	b     []byte
	i     int // of the value when next returned true; after the object when it returned false
	name  []byte
	start int // of the member, its quote
	comma int // of the comma before the member, or -1
	err   error
	began bool
}

// next moves to the value of the next member. The caller must have moved i past the previous value.
func (c *cursor) next(h *Header) bool {
	if c.err != nil {
		return false
	}
	b, i := c.b, c.i
	if !c.began {
		c.began = true
		c.comma = -1
		if i >= len(b) {
			return c.fail(i, frame.ErrShort)
		}
		if b[i] != '{' {
			return c.fail(i, frame.Syntax(i, "object"))
		}
		if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
			c.i = i + 1
			return false
		}
	} else {
		if i = skipSpace(b, i); i >= len(b) {
			return c.fail(i, frame.ErrShort)
		}
		switch b[i] {
		case '}':
			c.i = i + 1
			return false
		case ',':
			c.comma = i
			i = skipSpace(b, i+1)
		default:
			return c.fail(i, frame.Syntax(i, "comma or }"))
		}
	}
	if i >= len(b) {
		return c.fail(i, frame.ErrShort)
	}
	if b[i] != '"' {
		return c.fail(i, frame.Syntax(i, "name of a member"))
	}
	c.start = i
	end, plain, err := frame.SkipString(b, i)
	if err != nil {
		return c.fail(end, err)
	}
	c.name = b[i+1 : end-1]
	if !plain {
		c.name = h.unquote(c.name)
	}
	if i = skipSpace(b, end); i >= len(b) {
		return c.fail(i, frame.ErrShort)
	}
	if b[i] != ':' {
		return c.fail(i, frame.Syntax(i, "colon"))
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return c.fail(i, frame.ErrShort)
	}
	c.i = i
	return true
}

func (c *cursor) fail(i int, err error) bool {
	c.i, c.err = i, err
	return false
}

func skipSpace(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return frame.SkipSpace(b, i)
	}
	return i
}

func (h *Header) unquote(s []byte) []byte {
	n := len(h.scratch)
	h.scratch = frame.AppendUnquoted(h.scratch, s)
	return h.scratch[n:len(h.scratch):len(h.scratch)]
}

// scanJSON scans the object that starts at b[i]. Spans are relative to i.
func scanJSON(b []byte, i int, h *Header) (int, error) {
	begin := i
	c := cursor{b: b, i: i}
	for c.next(h) {
		switch string(c.name) {
		case "metadata":
			h.metadata.Start = c.i - begin
			c.i, c.err = scanMetadata(b, c.i, begin, h)
			h.metadata.End = c.i - begin
		case "kind":
			h.Kind, c.i, c.err = h.text(b, c.i, h.Kind, "kind")
		case "apiVersion":
			h.APIVersion, c.i, c.err = h.text(b, c.i, h.APIVersion, "apiVersion")
		default:
			c.i, c.err = frame.SkipValueAt(b, c.i, 1)
		}
	}
	return c.i, c.err
}

func scanMetadata(b []byte, i, begin int, h *Header) (int, error) {
	if b[i] != '{' {
		return h.other(b, i, 1, "metadata")
	}
	c := cursor{b: b, i: i}
	cut := -1 // end of managedFields if it is the first member and its span may include the comma after it
	for c.next(h) {
		switch string(c.name) {
		case "name":
			h.Name, c.i, c.err = h.text(b, c.i, h.Name, "metadata.name")
		case "namespace":
			h.Namespace, c.i, c.err = h.text(b, c.i, h.Namespace, "metadata.namespace")
		case "uid":
			h.UID, c.i, c.err = h.text(b, c.i, h.UID, "metadata.uid")
		case "resourceVersion":
			h.ResourceVersion, c.i, c.err = h.text(b, c.i, h.ResourceVersion, "metadata.resourceVersion")
		case "generation":
			c.i, c.err = h.generation(b, c.i)
		case "deletionTimestamp":
			h.DeletionTimestamp, c.i, c.err = h.text(b, c.i, nil, "metadata.deletionTimestamp")
		case "labels":
			c.i, c.err = scanLabels(b, c.i, h)
		case "ownerReferences":
			c.i, c.err = scanOwners(b, c.i, h)
		case "finalizers":
			c.i, c.err = scanFinalizers(b, c.i, h)
		case "managedFields":
			h.ManagedFields.Start = c.start - begin
			if c.comma >= 0 {
				h.ManagedFields.Start = c.comma - begin
			}
			first := c.comma < 0
			c.i, c.err = frame.SkipValueAt(b, c.i, 2)
			h.ManagedFields.End = c.i - begin
			if first {
				cut = c.i
			}
		default:
			c.i, c.err = frame.SkipValueAt(b, c.i, 2)
		}
	}
	if c.err == nil && cut >= 0 && h.ManagedFields.End == cut-begin {
		if j := skipSpace(b, cut); b[j] == ',' {
			h.ManagedFields.End = j + 1 - begin
		}
	}
	return c.i, c.err
}

// text reads a string value. null keeps the previous value, as in encoding/json.
func (h *Header) text(b []byte, i int, was []byte, member string) ([]byte, int, error) {
	if b[i] != '"' {
		i, err := h.other(b, i, 3, member)
		return was, i, err
	}
	end, plain, err := frame.SkipString(b, i)
	if err != nil {
		return was, end, err
	}
	s := b[i+1 : end-1 : end-1]
	if !plain || !valid(s) {
		s = h.unquote(s)
	}
	return s, end, nil
}

// valid reports whether s is valid UTF-8. Most names are plain ASCII.
func valid(s []byte) bool {
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return utf8.Valid(s)
		}
	}
	return true
}

// other skips a value of another type. It records a type error unless the value is null.
func (h *Header) other(b []byte, i, depth int, member string) (int, error) {
	if b[i] != 'n' {
		h.mistyped(member)
	}
	return frame.SkipValueAt(b, i, depth)
}

func (h *Header) generation(b []byte, i int) (int, error) {
	end, err := frame.SkipValueAt(b, i, 2)
	if err != nil || b[i] == 'n' {
		return end, err
	}
	n, bad := parseInt(b[i:end])
	if bad {
		h.mistyped("metadata.generation")
		return end, nil
	}
	h.Generation = n
	return end, nil
}

// parseInt parses a decimal integer, with strconv if it is longer than 18 digits.
func parseInt(s []byte) (n int64, bad bool) {
	if len(s) == 0 || len(s) > 18 {
		n, err := strconv.ParseInt(string(s), 10, 64)
		return n, err != nil
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, true
		}
		n = n*10 + int64(c-'0')
	}
	if s[0] == '-' {
		n = -n
	}
	return n, len(digits) == 0
}

func scanLabels(b []byte, i int, h *Header) (int, error) {
	if b[i] != '{' {
		if b[i] == 'n' {
			h.Labels, h.byKey = h.Labels[:0], nil
		}
		return h.other(b, i, 2, "metadata.labels")
	}
	c := cursor{b: b, i: i}
	for c.next(h) {
		key := c.name
		if !valid(key) {
			key = h.unquote(key) // next has already unquoted a name with escapes
		}
		var value []byte
		value, c.i, c.err = h.text(b, c.i, nil, "metadata.labels")
		h.addLabel(key, value)
	}
	return c.i, c.err
}

// elements iterates over an array. Each call of next moves i to an element, or past the array.
type elements struct {
	b     []byte
	i     int
	err   error
	began bool
}

func (e *elements) next() bool {
	if e.err != nil {
		return false
	}
	i := e.i
	closing := !e.began
	if !e.began {
		e.began = true
		i++ // skip the opening bracket
	}
	if i = skipSpace(e.b, i); i >= len(e.b) {
		e.i, e.err = i, frame.ErrShort
		return false
	}
	switch {
	case e.b[i] == ']':
		e.i = i + 1
		return false
	case closing:
	case e.b[i] == ',':
		if i = skipSpace(e.b, i+1); i >= len(e.b) {
			e.i, e.err = i, frame.ErrShort
			return false
		}
	default:
		e.i, e.err = i, frame.Syntax(i, "comma or ]")
		return false
	}
	e.i = i
	return true
}

func scanOwners(b []byte, i int, h *Header) (int, error) {
	if b[i] != '[' {
		if b[i] == 'n' {
			h.Owners = h.Owners[:0]
		}
		return h.other(b, i, 2, "metadata.ownerReferences")
	}
	h.Owners = h.Owners[:0]
	e := elements{b: b, i: i}
	for e.next() {
		var o Owner
		o, e.i, e.err = scanOwner(b, e.i, h)
		h.Owners = append(h.Owners, o)
	}
	return e.i, e.err
}

func scanOwner(b []byte, i int, h *Header) (o Owner, next int, err error) {
	const member = "metadata.ownerReferences"
	if b[i] != '{' {
		next, err = h.other(b, i, 3, member)
		return o, next, err
	}
	c := cursor{b: b, i: i}
	for c.next(h) {
		switch string(c.name) {
		case "uid":
			o.UID, c.i, c.err = h.text(b, c.i, o.UID, member)
		case "kind":
			o.Kind, c.i, c.err = h.text(b, c.i, o.Kind, member)
		case "name":
			o.Name, c.i, c.err = h.text(b, c.i, o.Name, member)
		case "apiVersion":
			o.APIVersion, c.i, c.err = h.text(b, c.i, o.APIVersion, member)
		case "controller":
			o.Controller = b[c.i] == 't'
			if b[c.i] != 't' && b[c.i] != 'f' && b[c.i] != 'n' {
				h.mistyped(member)
			}
			c.i, c.err = frame.SkipValueAt(b, c.i, 4)
		default:
			c.i, c.err = frame.SkipValueAt(b, c.i, 4)
		}
	}
	return o, c.i, c.err
}

func scanFinalizers(b []byte, i int, h *Header) (int, error) {
	const member = "metadata.finalizers"
	h.Finalizers = 0
	if b[i] != '[' {
		return h.other(b, i, 2, member)
	}
	e := elements{b: b, i: i}
	for e.next() {
		h.Finalizers++
		if b[e.i] != '"' {
			e.i, e.err = h.other(b, e.i, 3, member)
			continue
		}
		e.i, _, e.err = frame.SkipString(b, e.i)
	}
	return e.i, e.err
}
