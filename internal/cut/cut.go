// Package cut removes fields from encoded objects, JSON or protobuf, without decoding them. The removed values are
// never copied.
//
// A path names a field by its JSON member names, such as "spec.template". A member name that contains dots is in
// brackets, and so may be the key of a map: "metadata.annotations[example.com/note]". A path leads through objects and
// not through lists. It can remove only a whole list.
//
// Reading order: cut.go, json.go, proto.go.
package cut

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Paths is a set of fields to remove. The zero value and nil remove nothing. It is safe for concurrent use.
type Paths struct {
	list [][]string // sorted; no path is within another
	root node
}

// node is a member on a path. It is removed if it ends a path, else its members are searched.
type node struct {
	members map[string]*node // nil: the node ends a path
	index   int              // of that path
}

// Set records which paths were found: bit i for path i. Paths from the 32nd on share the last bit.
type Set uint32

const lastBit = 31

func (s *Set) add(index int) { *s |= 1 << min(index, lastBit) }

// Has reports whether path i was found. For paths that share the last bit it reports whether any of them was.
func (s Set) Has(i int) bool { return s&(1<<min(i, lastBit)) != 0 }

// ErrList is the error of a path that leads through a list.
var ErrList = errors.New("it is a list, of which all can be cut, or nothing")

// Parse parses paths. Their order does not matter. A path within another one is dropped.
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

// within reports whether a path is equal to or below another.
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

// Len returns the number of paths, not counting dropped ones.
func (p *Paths) Len() int {
	if p == nil {
		return 0
	}
	return len(p.list)
}

// Path returns the members of path i in sorted order.
func (p *Paths) Path(i int) []string { return p.list[i] }

// Text returns path i in the syntax of Parse.
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

// String returns all paths in the syntax of Parse. Equal sets have equal texts.
func (p *Paths) String() string {
	var texts []string
	for i := range p.Len() {
		texts = append(texts, p.Text(i))
	}
	return strings.Join(texts, ", ")
}
