package cut

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Message is a Paths translated to the field numbers of one protobuf message. It is safe for concurrent use.
type Message struct{ fields []field }

// field is a field to remove or to search. Several may share a number, as for the keys of a map.
type field struct {
	number int
	key    string // the map entry with this key; "": the whole field
	index  int    // index of the path that ends here
	within *Message
}

// errUnknown: the Go type does not determine the protobuf field.
var errUnknown = errors.New("its Go type does not tell where it is in protobuf")

// Check returns an error if a path leads through a list of a Go type (ErrList). It accepts members that the type does
// not have.
func (p *Paths) Check(t reflect.Type) error {
	for i, path := range p.list {
		of, ok := t, true
		for j := 0; j < len(path) && ok; j++ {
			if isList(of) {
				return fmt.Errorf("cannot cut %s: %s: %w", p.Text(i), path[j-1], ErrList)
			}
			switch of.Kind() {
			case reflect.Struct:
				_, of, ok = find(of, path[j])
				ok = ok && !encodesItself(of)
			case reflect.Map:
				of = behind(of.Elem())
			default:
				ok = false
			}
		}
	}
	return nil
}

// Message translates the paths for the message of a Go struct type. The error names a path that cannot be translated.
func (p *Paths) Message(t reflect.Type) (*Message, error) {
	m := &Message{}
	for i, path := range p.list {
		if err := m.add(t, path, i); err != nil {
			return nil, fmt.Errorf("cannot cut %s: %w", p.Text(i), err)
		}
	}
	return m, nil
}

// add adds one path.
func (m *Message) add(t reflect.Type, path []string, index int) error {
	if t = behind(t); t.Kind() != reflect.Struct || encodesItself(t) {
		return errUnknown
	}
	numbers, of, ok := find(t, path[0])
	if !ok || slices.Contains(numbers, 0) {
		return errUnknown
	}
	for _, number := range numbers[:len(numbers)-1] {
		m = m.below(number, "")
	}
	number := numbers[len(numbers)-1]
	switch {
	case len(path) == 1:
		m.fields = append(m.fields, field{number: number, index: index})
	case of.Kind() != reflect.Map:
		return m.below(number, "").add(of, path[1:], index)
	case of.Key().Kind() != reflect.String || encodesItself(of):
		return errUnknown
	case len(path) == 2:
		m.fields = append(m.fields, field{number: number, key: path[1], index: index})
	default:
		return m.below(number, path[1]).below(2, "").add(of.Elem(), path[2:], index)
	}
	return nil
}

// below returns the message of a field, or of an entry of a map, and adds it if needed.
func (m *Message) below(number int, key string) *Message {
	for _, f := range m.fields {
		if f.number == number && f.key == key && f.within != nil {
			return f.within
		}
	}
	within := &Message{}
	m.fields = append(m.fields, field{number: number, key: key, within: within})
	return within
}

// find returns the field numbers that lead to a JSON member of a struct, and its type. There is more than one number if
// JSON inlines the enclosing field. A number is 0 if the type does not determine it.
func find(t reflect.Type, member string) (numbers []int, of reflect.Type, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		inline := name == "" && (f.Anonymous || slices.Contains(strings.Split(opts, ","), "inline"))
		switch {
		case inline:
			if in := behind(f.Type); in.Kind() == reflect.Struct {
				if numbers, of, ok = find(in, member); ok {
					return append([]int{numberOf(f)}, numbers...), of, true
				}
			}
		case name == member, name == "" && f.Name == member:
			return []int{numberOf(f)}, behind(f.Type), true
		}
	}
	return nil, nil, false
}

func numberOf(f reflect.StructField) int {
	_, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
	text, _, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return number
}

// behind returns the type that a pointer type points to, and other types unchanged.
func behind(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// isList reports whether JSON represents a type as a list. Byte slices are strings.
func isList(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem().Kind() != reflect.Uint8
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// encodesItself reports whether a type has its own JSON encoding, which may differ from its fields.
func encodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(marshaler) }

// Append appends a message to dst without the fields of m and returns the paths that it found. Fields that the Go type
// does not have stay. It fails if raw is not a message.
func (m *Message) Append(dst, raw []byte) (out []byte, found Set, err error) {
	out, err = m.append(dst, raw, &found)
	if err != nil {
		return dst, 0, err
	}
	return out, found, nil
}

func (m *Message) append(dst, raw []byte, found *Set) ([]byte, error) {
	for i := 0; i < len(raw); {
		f, next, err := frame.NextField(raw, i)
		if err != nil {
			return dst, err
		}
		if dst, err = m.field(dst, raw, i, f, found); err != nil {
			return dst, err
		}
		i = next
	}
	return dst, nil
}

// field appends the rest of one field, which begins at raw[i].
func (m *Message) field(dst, raw []byte, i int, f frame.Field, found *Set) ([]byte, error) {
	value, changed := raw[f.Start:f.End], false
	for j := range m.fields {
		cut := &m.fields[j]
		if cut.number != f.Number || cut.key != "" && !hasKey(value, cut.key) {
			continue
		}
		if cut.within == nil {
			found.add(cut.index)
			return dst, nil
		}
		if f.Type != frame.Bytes {
			continue
		}
		in, err := cut.within.append(nil, value, found)
		if err != nil {
			return dst, err
		}
		if len(in) != len(value) {
			value, changed = in, true
		}
	}
	if !changed {
		return append(dst, raw[i:f.End]...), nil
	}
	dst = binary.AppendUvarint(dst, uint64(f.Number)<<3|frame.Bytes)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...), nil
}

// hasKey reports whether an entry of a map has a key. The last key field of the entry counts.
func hasKey(entry []byte, key string) bool {
	has := false
	for i := 0; i < len(entry); {
		f, next, err := frame.NextField(entry, i)
		if err != nil {
			return has
		}
		if f.Number == 1 && f.Type == frame.Bytes {
			has = string(entry[f.Start:f.End]) == key
		}
		i = next
	}
	return has
}
