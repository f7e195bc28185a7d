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

// Message is Paths in terms of the fields of one protobuf message. It is safe for concurrent use.
type Message struct{ fields []field }

// field is a field of which something is cut; several may have one number, as keys of a map have.
type field struct {
	number int
	key    string // only the entry with this key; "": all of the field
	index  int    // of the path that ends here
	within *Message
}

// errUnknown: what protobuf has of it, if anything, cannot be told.
var errUnknown = errors.New("its Go type does not tell where it is in protobuf")

// Check says which path goes through a list of a Go type (ErrList). What the type does not have may be anything.
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

// Message returns the paths in terms of the message that a Go type, a struct, stands for. An error says which path
// cannot be told in these terms.
func (p *Paths) Message(t reflect.Type) (*Message, error) {
	m := &Message{}
	for i, path := range p.list {
		if err := m.add(t, path, i); err != nil {
			return nil, fmt.Errorf("cannot cut %s: %w", p.Text(i), err)
		}
	}
	return m, nil
}

// add adds a path to the message of a type.
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

// below returns the message of a field, or of an entry of a map.
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

// find returns where a struct has a member of JSON: the numbers of the fields that lead there, more than one if it
// is in one that JSON shows inline, and its type. A number is 0 where the type does not tell it.
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

// behind is what a pointer points to.
func behind(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// isList says whether JSON has a list for a type. It has texts for bytes.
func isList(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem().Kind() != reflect.Uint8
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// encodesItself says that what JSON has of a type need not be what its fields say.
func encodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(marshaler) }

// Append appends a message to dst without what is to be cut, and says which paths it has found. Fields that the Go type
// does not know stay. An error means that raw is no message.
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

// field appends what stays of one field, which begins at raw[i].
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

// hasKey says whether an entry of a map has a key. The last one that it says counts.
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
