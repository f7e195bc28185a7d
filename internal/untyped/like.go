package untyped

import (
	"bytes"
	"slices"
)

// UnmarshalShared is Unmarshal for an object that nobody may change afterwards: it shares parts with others.
func (d *Decoder) UnmarshalShared(data []byte) (map[string]any, error) {
	dec := decoding{words: &d.words, data: data}
	dec.begin(&d.trees, data)
	defer dec.end()
	if dec.next() == '{' && dec.spans != nil {
		dec.span = 1 // it is not shared as a whole
		o, err := dec.object(0, int(dec.spans[0].items))
		if dec.skip(); err == nil && dec.at == len(data) {
			return o, nil
		}
	}
	return d.Unmarshal(data)
}

// UnmarshalLike is UnmarshalShared for who holds another object, and the data that it was decoded from: what is the
// same in both, byte for byte, down to the members of spec and status, the two share. Neither may be changed
// afterwards.
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

// likeDepth is down to where what is not the same is looked into.
const likeDepth = 2

// member is one of an object.
type member struct{ name, value []byte }

// members returns those of the object at d.at, without a look into them.
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

// pass goes to the end of the value at d.at. Of what is in it, it looks at brackets and quotes only.
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

// quoted returns how long the string at the beginning of b is; 0 if it does not end.
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

// objectLike decodes the object at d.at; like was decoded from that at other.at.
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

// valueLike returns the value of a member: that of the other object, if it is the same.
func (d *decoding) valueLike(depth int, m member, theirs []member, like map[string]any, known *trees) (any, error) {
	value := decoding{words: d.words, data: bytes.TrimRight(m.value, " \t\r\n"), piece: d.piece, stack: d.stack}
	defer func() { d.piece, d.stack = value.piece, value.stack }()
	// of two members of one name the last one counts
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
