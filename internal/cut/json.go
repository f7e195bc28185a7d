package cut

import (
	"fmt"
	"unicode/utf8"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// AppendJSON appends an object to dst without the fields of p and returns the paths that it found. A null field does
// not count as found. The remaining bytes stay as they were written. It fails if raw is not an object or a path leads
// through a list (ErrList).
func (p *Paths) AppendJSON(dst, raw []byte) (out []byte, found Set, err error) {
	if p.Len() == 0 {
		return append(dst, raw...), 0, nil
	}
	c := cutter{b: raw, dst: dst}
	i := frame.SkipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return dst, 0, frame.Syntax(i, "object")
	}
	if i, err = c.object(i, &p.root, 0); err != nil {
		return dst, 0, err
	}
	if i = frame.SkipSpace(raw, i); i < len(raw) {
		return dst, 0, frame.Syntax(i, "no data after the object")
	}
	return append(c.dst, raw[c.from:]...), c.found, nil
}

// cutter copies an object without the removed fields.
type cutter struct {
	b, dst []byte
	from   int // bytes before are copied or removed
	names  []byte
	found  Set
}

// object processes the object that begins at b[i] and returns the index after it.
func (c *cutter) object(i int, n *node, depth int) (int, error) {
	b := c.b
	comma := -1 // index of the last comma
	stays := false
	i = frame.SkipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		start := i
		if i >= len(b) || b[i] != '"' {
			return i, frame.Syntax(i, "name of a member")
		}
		end, plain, err := frame.SkipString(b, i)
		if err != nil {
			return end, err
		}
		name := b[i+1 : end-1]
		if !plain || !utf8.Valid(name) {
			c.names = frame.AppendUnquoted(c.names[:0], name)
			name = c.names
		}
		if i = frame.SkipSpace(b, end); i >= len(b) || b[i] != ':' {
			return i, frame.Syntax(i, "colon")
		}
		if i = frame.SkipSpace(b, i+1); i >= len(b) {
			return i, frame.ErrShort
		}
		below := n.members[string(name)]
		gone := below != nil && below.members == nil
		switch {
		case gone && b[i] != 'n':
			c.found.add(below.index)
		case gone, below == nil:
			below = nil
		case b[i] == '[':
			return i, fmt.Errorf("cannot cut below %s: %w", name, ErrList)
		}
		if !gone && below != nil && b[i] == '{' {
			i, err = c.object(i, below, depth+1)
		} else {
			i, err = frame.SkipValueAt(b, i, depth+1)
		}
		if err != nil {
			return i, err
		}
		if gone {
			if stays {
				start = comma
			}
			c.dst = append(c.dst, b[c.from:start]...)
			c.from = i
		}
		if i = frame.SkipSpace(b, i); i >= len(b) {
			return i, frame.ErrShort
		}
		switch {
		case b[i] == '}':
			return i + 1, nil
		case b[i] != ',':
			return i, frame.Syntax(i, "comma or }")
		}
		stays = stays || !gone
		comma = i
		i = frame.SkipSpace(b, i+1)
		if gone && !stays {
			c.from = i
		}
	}
}
