package decodable

import (
	"reflect"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Checker checks objects and caches the plans of types. The zero value is ready to use. It is safe for concurrent use.
type Checker struct{ planner planner }

// Type describes the objects that a Go type accepts; see Checker.Type.
type Type struct{ plan *plan }

// Type returns the Type of a Go type.
func (c *Checker) Type(t reflect.Type) Type { return Type{c.planner.of(t)} }

// Object returns the Type of untyped objects.
func Object() Type {
	return Type{&plan{takes: dict, elem: &plan{takes: free, digits: plainDigits}}}
}

// Takes reports whether data is an object that decodes into the type without an error. False means unknown.
func (t Type) Takes(data []byte) bool {
	c := check{b: data}
	c.space()
	if c.i >= len(data) || data[c.i] != '{' {
		return false
	}
	ok := c.value(t.plan, 1)
	c.space()
	return ok && c.i == len(data)
}

// maxDepth bounds the nesting of values. Takes returns false for deeper ones.
const maxDepth = 100

// check is the state of one Takes.
type check struct {
	b []byte
	i int
}

func (c *check) space() {
	if c.i < len(c.b) && c.b[c.i] <= ' ' {
		c.i = frame.SkipSpace(c.b, c.i)
	}
}

// at skips white space and reports whether the next byte is want. If so it skips that byte.
func (c *check) at(want byte) bool {
	c.space()
	if c.i >= len(c.b) || c.b[c.i] != want {
		return false
	}
	c.i++
	return true
}

// skip skips a value of any kind.
func (c *check) skip(depth int) bool {
	var err error
	c.i, err = frame.SkipValueAt(c.b, c.i, depth)
	return err == nil
}

// value checks the value at c.i, which must not be white space.
func (c *check) value(p *plan, depth int) bool {
	if c.i >= len(c.b) || depth > maxDepth {
		return false
	}
	switch p.takes {
	case unsure:
		return false
	case anything:
		return c.skip(depth)
	}
	switch first := c.b[c.i]; first {
	case 'n':
		return p.takes != duration && c.skip(depth)
	case '{':
		switch p.takes {
		case object, dict, free:
			return c.members(p, depth)
		}
	case '[':
		switch p.takes {
		case list:
			return c.elements(p.elem, depth)
		case free:
			return c.elements(p, depth)
		}
	case '"':
		return c.text(p)
	case 't', 'f':
		return (p.takes == boolean || p.takes == free) && c.skip(depth)
	default:
		return c.number(p)
	}
	return false
}

// members checks the object at c.i.
func (c *check) members(p *plan, depth int) bool {
	c.i++
	if c.at('}') {
		return true
	}
	for {
		c.space()
		name, plain, ok := c.string()
		if !ok || !plain && p.takes == object || !c.at(':') {
			return false
		}
		c.space()
		member := p.elem
		switch p.takes {
		case free:
			member = p
		case object:
			member = p.fields[string(name)]
		}
		if member == nil {
			ok = c.skip(depth)
		} else {
			ok = c.value(member, depth+1)
		}
		if !ok {
			return false
		}
		if c.at('}') {
			return true
		}
		if !c.at(',') {
			return false
		}
	}
}

// elements checks the list at c.i.
func (c *check) elements(p *plan, depth int) bool {
	c.i++
	if c.at(']') {
		return true
	}
	for {
		c.space()
		if !c.value(p, depth+1) {
			return false
		}
		if c.at(']') {
			return true
		}
		if !c.at(',') {
			return false
		}
	}
}

// string skips the string at c.i and returns the bytes between the quotes. plain reports that it has no escapes.
func (c *check) string() (s []byte, plain, ok bool) {
	if c.i >= len(c.b) || c.b[c.i] != '"' {
		return nil, false, false
	}
	begin := c.i + 1
	end, plain, err := frame.SkipString(c.b, c.i)
	if err != nil {
		return nil, false, false
	}
	c.i = end
	return c.b[begin : end-1], plain, true
}
