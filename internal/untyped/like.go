package untyped

import (
	"bytes"
	"slices"
)

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
// The result shares every member that is byte for byte the same in both, down to the members of spec and status.
// Neither object may be modified afterwards.
func (d *Decoder) UnmarshalLike(data, likeData []byte, like map[string]any) (map[string]any, error) {
	dec := decoding{words: &d.words, data: data}
	other := decoding{data: likeData}
	if dec.next() == '{' && other.next() == '{' {
		o, err := dec.objectLike(1, &other, like, &d.trees)
		if dec.skip(); err == nil && dec.at == len(data) {
			return o, nil
		}
	}
	return d.UnmarshalShared(data)
}

// likeDepth is the depth down to which differing members are compared.
const likeDepth = 2

// member is a member of an encoded object.
type member struct{ name, value []byte }

// members returns the members of the object at d.at without decoding their values.
func (d *decoding) members() (all []member, err error) {
	d.at++
	if d.next() == '}' {
		d.at++
		return nil, nil
	}
	for {
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
		d.next()
		begin := d.at
		if err := d.pass(); err != nil {
			return nil, err
		}
		all = append(all, member{name, d.data[begin:d.at]})
		switch d.next() {
		case ',':
			d.at++
		case '}':
			d.at++
			return all, nil
		default:
			return nil, errUnusual
		}
	}
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

// objectLike decodes the object at d.at. like was decoded from the object at other.at.
func (d *decoding) objectLike(depth int, other *decoding, like map[string]any, known *trees) (map[string]any, error) {
	theirs, err := other.members()
	if err != nil {
		return nil, err
	}
	begin := d.at
	ours, err := d.members()
	if err != nil {
		return nil, err
	}
	end := d.at
	o := make(map[string]any, len(ours))
	d.at = begin
	for _, m := range ours {
		v, err := d.valueLike(depth, m, theirs, like, known)
		if err != nil {
			return nil, err
		}
		o[d.words.name(m.name, &d.piece, len(d.data)-d.at)] = v
	}
	d.at = end
	return o, nil
}

// valueLike returns the value of a member. If the other object has the same bytes, it returns that object's value.
func (d *decoding) valueLike(depth int, m member, theirs []member, like map[string]any, known *trees) (any, error) {
	value := decoding{words: d.words, data: bytes.TrimRight(m.value, " \t\r\n"), piece: d.piece, stack: d.stack}
	defer func() { d.piece, d.stack = value.piece, value.stack }()
	// The last of several members with the same name wins.
	for _, t := range slices.Backward(theirs) {
		if !bytes.Equal(t.name, m.name) {
			continue
		}
		was, ok := like[string(m.name)]
		if !ok {
			break
		}
		if bytes.Equal(t.value, m.value) {
			return was, nil
		}
		if within, ok := was.(map[string]any); ok && depth < likeDepth && value.next() == '{' {
			return value.objectLike(depth+1, &decoding{data: t.value}, within, known)
		}
		break
	}
	if c := value.next(); c == '{' || c == '[' {
		value.begin(known, value.data)
		defer value.end()
	}
	v, err := value.value(depth)
	if err == nil && value.at != len(value.data) {
		err = errUnusual
	}
	return v, err
}
