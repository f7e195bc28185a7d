// Package cut takes fields out of encoded objects, JSON or protobuf, without decoding them: what is cut is in no memory
// but that of the bytes that came.
//
// A path names a field by its members as JSON has them, "spec.template"; a member that has dots in its name is in
// brackets, as the keys of maps may be: "metadata.annotations[example.com/note]". It goes through objects, not through
// lists: of a list all goes or nothing.
//
// Reading order: cut.go, json.go, proto.go.
package cut

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Paths are the fields to take out. The zero value, and nil, take nothing. It is safe for concurrent use.
type Paths struct {
	list [][]string // in order; none is within another one
	root node
}

// node is a member on the way: all that is below goes, or what its own members say.
type node struct {
	members map[string]*node // nil: it is the end of a path
	index   int              // of that path
}

// Set says which paths have been found: bit i for path i; those from the 32nd on share the last bit.
type Set uint32

const lastBit = 31

func (s *Set) add(index int) { *s |= 1 << min(index, lastBit) }

// Has says whether path i has been found; of the last ones whether one of them has.
func (s Set) Has(i int) bool { return s&(1<<min(i, lastBit)) != 0 }

// ErrList is matched when a path goes through a list.
var ErrList = errors.New("it is a list, of which all can be cut, or nothing")

// Parse reads paths, whose order makes no difference. One that is within another one adds nothing.
func Parse(paths []string) (*Paths, error) {
	p := &Paths{}
	for _, text := range paths {
		path, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("malformed path %q: %w", text, err)
		}
		p.list = append(p.list, path)
	}
	slices.SortFunc(p.list, slices.Compare)
	kept := p.list[:0]
	for _, path := range p.list {
		if n := len(kept); n == 0 || !within(path, kept[n-1]) {
			kept = append(kept, path)
		}
	}
	p.list = kept
	for i, path := range p.list {
		n := &p.root
		for _, member := range path {
			if n.members == nil {
				n.members = map[string]*node{}
			}
			if n.members[member] == nil {
				n.members[member] = &node{index: i}
			}
			n = n.members[member]
		}
	}
	return p, nil
}

// within says whether a path is below another one, or the same.
func within(path, other []string) bool {
	return len(path) >= len(other) && slices.Equal(path[:len(other)], other)
}

var (
	errEmpty   = errors.New("a member has no name")
	errBracket = errors.New("a bracket is not closed, or not the end of a member")
	errAll     = errors.New("no member is called *: a path names one member, and does not go through lists")
)

func parse(text string) (path []string, err error) {
	for rest, more := text, true; more; {
		var member string
		if strings.HasPrefix(rest, "[") {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, errBracket
			}
			member, rest = rest[1:end], rest[end+1:]
			more = rest != ""
			switch {
			case !more || rest[0] == '[':
			case rest[0] == '.':
				rest = rest[1:]
			default:
				return nil, errBracket
			}
		} else {
			end := strings.IndexAny(rest, ".[]")
			more = end >= 0
			member = rest
			if more {
				member = rest[:end]
				switch rest[end] {
				case ']':
					return nil, errBracket
				case '.':
					end++
				}
				rest = rest[end:]
			}
		}
		switch member {
		case "":
			return nil, errEmpty
		case "*":
			return nil, errAll
		}
		path = append(path, member)
	}
	return path, nil
}

// Len returns the number of paths, none within another one.
func (p *Paths) Len() int {
	if p == nil {
		return 0
	}
	return len(p.list)
}

// Path returns path i, in the one order that they have, as its members.
func (p *Paths) Path(i int) []string { return p.list[i] }

// Text returns path i as it is written.
func (p *Paths) Text(i int) string { return write(p.list[i]) }

func write(path []string) string {
	var b strings.Builder
	for i, member := range path {
		switch {
		case strings.ContainsAny(member, ".["):
			b.WriteString("[" + member + "]")
		case i > 0:
			b.WriteString("." + member)
		default:
			b.WriteString(member)
		}
	}
	return b.String()
}

// String returns all paths as they are written; equal ones are the same text.
func (p *Paths) String() string {
	var texts []string
	for i := range p.Len() {
		texts = append(texts, p.Text(i))
	}
	return strings.Join(texts, ", ")
}
