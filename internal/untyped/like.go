package untyped

import "bytes"

// UnmarshalShared is Unmarshal for a result that must not be modified: it shares parts with other results.
func (d *Decoder) UnmarshalShared(data []byte) (map[string]any, error) {
	dec := decoding{words: &d.words, data: data}
	dec.begin(&d.trees, data)
	defer dec.end()
	if dec.next() == '{' && dec.spans != nil {
		dec.span = 1 // the object as a whole is not shared
		o, err := dec.object(0, int(dec.spans[0].items))
		if dec.skip(); err == nil && dec.at == len(data) {
			return o, nil
		}
	}
	return d.Unmarshal(data)
}

// UnmarshalLike is UnmarshalShared for a caller that holds another object, like, and the data that it was decoded from.
// The result shares every value of like whose bytes are the same, as long as both have their members and items in the
// same order, except for a few. like may have an apiVersion and a kind that its data does not have. Neither object may
// be modified afterwards.
func (d *Decoder) UnmarshalLike(data, likeData []byte, like map[string]any) (map[string]any, error) {
	dec := decoding{words: &d.words, data: data}
	dec.begin(&d.trees, data)
	defer dec.end()
	other := decoding{data: likeData}
	if dec.next() == '{' && other.next() == '{' && dec.spans != nil {
		dec.span = 1 // the object as a whole is not shared
		o, err := dec.objectLike(0, int(dec.spans[0].items), &members{decoding: &other, root: true}, like)
		if dec.skip(); err == nil && dec.at == len(data) {
			return o, nil
		}
	}
	return d.UnmarshalShared(data)
}

// maxAhead is how many members of the other object are searched for the next one of ours.
const maxAhead = 4

// members walks through the members of an encoded object that was decoded before.
type members struct {
	*decoding
	root bool // the decoded object may have an apiVersion and a kind that the text does not have

	name  []byte // of the member whose value is at d.at; nil: the object has ended
	n     int    // number of members up to this one, without those that say what the type is
	typed [2]bool
}

// next moves to the first member, or to the one after a value.
func (m *members) next() error {
	switch m.decoding.next() {
	case '{', ',':
		m.at++
	case '}':
		m.at++
		m.name = nil
		return nil
	default:
		return errUnusual
	}
	if m.decoding.next() == '}' && m.name == nil { // there is none
		m.at++
		return nil
	}
	name, err := m.decoding.name()
	if err != nil {
		return err
	}
	m.name = name
	return m.count()
}

// count counts the member. It fails if the type is said twice.
func (m *members) count() error {
	said := -1
	if m.root {
		switch string(m.name) {
		case "apiVersion":
			said = 0
		case "kind":
			said = 1
		}
	}
	switch {
	case said < 0:
		m.n++
	case m.typed[said]:
		return errUnusual
	default:
		m.typed[said] = true
	}
	return nil
}

// find moves to a member with a name, if it is this one or one of the next.
func (m *members) find(name []byte) (bool, error) {
	from, at := *m, m.at
	for range maxAhead {
		if bytes.Equal(m.name, name) {
			return m.name != nil, nil
		}
		if m.name == nil {
			break
		}
		if err := m.pass(); err != nil {
			return false, err
		}
		if err := m.next(); err != nil {
			return false, err
		}
	}
	*m, m.at = from, at
	return false, nil
}

// end moves behind the object. It fails if a name occurs twice, since then the values of the decoded object are not
// those of the members that were found.
func (m *members) end(decoded map[string]any) error {
	for m.name != nil {
		if err := m.pass(); err != nil {
			return err
		}
		if err := m.next(); err != nil {
			return err
		}
	}
	n := len(decoded)
	if m.root {
		for _, name := range []string{"apiVersion", "kind"} {
			if _, ok := decoded[name]; ok {
				n--
			}
		}
	}
	if m.n != n {
		return errUnusual
	}
	return nil
}

// take moves behind a text if it is at d.at.
func (d *decoding) take(text []byte) bool {
	if !bytes.HasPrefix(d.data[d.at:], text) {
		return false
	}
	d.at += len(text)
	return true
}

// valueLike decodes the value at d.at. was was decoded from the value at other.at.
func (d *decoding) valueLike(depth int, other *decoding, was any) (v any, err error) {
	c := d.next()
	theirs, begin := other.next(), d.at
	switch {
	case c == '"':
		var s []byte
		if s, err = d.raw(); err != nil {
			return nil, err
		}
		if other.take(d.data[begin:d.at]) {
			return was, nil
		}
		v = d.words.value(s, &d.piece, len(d.data)-d.at)
	case (c == '{' || c == '[') && c == theirs:
		return d.nestedLike(c, depth+1, other, was)
	default:
		if v, err = d.value(depth); err != nil {
			return nil, err
		}
	}
	return v, other.pass()
}

// nestedLike is valueLike where both values are objects, or both are lists.
func (d *decoding) nestedLike(bracket byte, depth int, other *decoding, was any) (any, error) {
	found := d.spans[d.span]
	if other.take(d.data[d.at:found.end]) {
		d.at, d.span = int(found.end), int(found.next)
		return was, nil
	}
	d.span++
	if object, ok := was.(map[string]any); ok && bracket == '{' {
		return d.objectLike(depth, int(found.items), &members{decoding: other}, object)
	}
	if list, ok := was.([]any); ok && bracket == '[' {
		return d.listLike(depth, other, list)
	}
	return nil, errUnusual
}

// objectLike decodes the object at d.at, which has about size members. was was decoded from the object of other.
func (d *decoding) objectLike(depth, size int, other *members, was map[string]any) (map[string]any, error) {
	if depth > maxDepth {
		return nil, errUnusual
	}
	if err := other.next(); err != nil {
		return nil, err
	}
	d.at++
	o := make(map[string]any, size)
	if d.next() == '}' {
		d.at++
		return o, other.end(was)
	}
	for {
		name, err := d.name()
		if err != nil {
			return nil, err
		}
		v, err := d.memberLike(depth, name, other, was)
		if err != nil {
			return nil, err
		}
		o[d.words.name(name, &d.piece, len(d.data)-d.at)] = v
		switch d.next() {
		case ',':
			d.at++
		case '}':
			d.at++
			return o, other.end(was)
		default:
			return nil, errUnusual
		}
	}
}

// memberLike decodes the value at d.at of the member with a name.
func (d *decoding) memberLike(depth int, name []byte, other *members, was map[string]any) (any, error) {
	found, err := other.find(name)
	if err != nil {
		return nil, err
	}
	if !found {
		return d.value(depth)
	}
	v, err := d.valueLike(depth, other.decoding, was[string(name)])
	if err != nil {
		return nil, err
	}
	return v, other.next()
}

// listLike decodes the list at d.at. was was decoded from the list at other.at.
func (d *decoding) listLike(depth int, other *decoding, was []any) ([]any, error) {
	if depth > maxDepth {
		return nil, errUnusual
	}
	d.at++
	other.at++
	mine := len(d.stack)
	more, err := other.more(true)
	if err == nil && d.next() == ']' {
		d.at++
		return []any{}, other.passItems(more)
	}
	for n := 0; err == nil; n++ {
		var v any
		if more && n < len(was) {
			if v, err = d.valueLike(depth, other, was[n]); err == nil {
				more, err = other.more(false)
			}
		} else {
			v, err = d.value(depth)
		}
		if err != nil {
			break
		}
		d.stack = append(d.stack, v)
		switch d.next() {
		case ',':
			d.at++
		case ']':
			d.at++
			return d.items(mine), other.passItems(more)
		default:
			return nil, errUnusual
		}
	}
	return nil, err
}

// more moves to the next item of a list, and reports whether there is one. first is whether d.at is at the beginning of
// the list, and not behind an item.
func (d *decoding) more(first bool) (bool, error) {
	switch c := d.next(); {
	case c == ']':
		d.at++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		d.at++
		return true, nil
	default:
		return false, errUnusual
	}
}

// passItems moves behind the list whose item is at d.at, if there is more.
func (d *decoding) passItems(more bool) error {
	for more {
		err := d.pass()
		if err == nil {
			more, err = d.more(false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass skips the value at d.at. It checks only brackets and quotes.
func (d *decoding) pass() error {
	open := 0
	for d.at < len(d.data) {
		switch c := d.data[d.at]; c {
		case '"':
			end := quoted(d.data[d.at:])
			if end == 0 {
				return errUnusual
			}
			if d.at += end; open == 0 {
				return nil
			}
		case '{', '[':
			open++
			d.at++
		case '}', ']', ',':
			if open == 0 { // the end of a number or a word
				return nil
			}
			if d.at++; c != ',' {
				if open--; open == 0 {
					return nil
				}
			}
		default:
			d.at++
		}
	}
	return errUnusual
}

// quoted returns the length of the string at the beginning of b, or 0 if the string is incomplete.
func quoted(b []byte) int {
	for at := 1; ; {
		end := bytes.IndexByte(b[at:], '"')
		if end < 0 {
			return 0
		}
		at += end + 1
		slashes := 0
		for i := at - 2; i > 0 && b[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
}
