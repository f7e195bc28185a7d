package source

import (
	"bytes"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Encoding is the wire format of an object.
type Encoding uint8

// The encodings.
const (
	JSON     Encoding = iota
	Protobuf          // the message without the k8s envelope
)

func (e Encoding) String() string {
	if e == Protobuf {
		return "protobuf"
	}
	return "json"
}

// Header holds the metadata of an object that a cache needs. Scan fills it while it validates the object. Its slices
// alias the object's bytes, or scratch memory of the Header where escapes were resolved. They are valid as long as both
// are.
type Header struct {
	APIVersion, Kind                      []byte // empty for most items of a list
	Namespace, Name, UID, ResourceVersion []byte
	Generation                            int64
	DeletionTimestamp                     []byte // RFC 3339; empty: not being deleted
	Labels                                []Pair
	Owners                                []Owner
	Finalizers                            int  // number of finalizers
	ManagedFields                         Span // zero: none

	metadata Span // value of metadata; for protobuf with tag and length
	scratch  []byte
	byKey    map[string]int // index of Labels if there are more than fewLabels
	wrong    error          // first member with a wrong type
}

// Pair is one label.
type Pair struct{ Key, Value []byte }

// Owner is one owner reference.
type Owner struct {
	UID, Kind, Name, APIVersion []byte
	Controller                  bool
}

// Span is a range of an object's bytes. The span of managedFields in JSON includes one comma, so removing it leaves
// valid JSON. In protobuf the enclosing lengths change too: see [Object.AppendPruned].
type Span struct{ Start, End int }

func (s *Span) shift(n int) {
	if !s.Empty() {
		s.Start, s.End = s.Start+n, s.End+n
	}
}

// Empty reports whether the span covers no bytes.
func (s Span) Empty() bool { return s.Start >= s.End }

// Object is one object in its wire format. It is valid only during the call that it is passed to.
type Object struct {
	Raw      []byte
	Encoding Encoding
	Header   Header
}

// AppendPruned appends the object's bytes without managedFields to dst.
func (o *Object) AppendPruned(dst []byte) []byte {
	cut := o.Header.ManagedFields
	switch {
	case cut.Empty():
		return append(dst, o.Raw...)
	case o.Encoding == Protobuf:
		return appendPrunedProto(dst, o.Raw, o.Header.metadata, cut)
	}
	dst = append(dst, o.Raw[:cut.Start]...)
	return append(dst, o.Raw[cut.End:]...)
}

// Scan validates raw, which must hold exactly one object, and fills h. It does not allocate when h is reused. A member
// of a wrong type is an error, but Scan still fills the rest of h, so that a report can name the object.
func Scan(enc Encoding, raw []byte, h *Header) error {
	h.reset()
	if enc == Protobuf {
		return scanProto(raw, h)
	}
	begin := frame.SkipSpace(raw, 0)
	i, err := scanJSON(raw, begin, h)
	if err == nil {
		h.metadata.shift(begin)
		h.ManagedFields.shift(begin)
		if i = frame.SkipSpace(raw, i); i < len(raw) {
			err = frame.Syntax(i, "no data after the object")
		}
	}
	if err != nil {
		return fmt.Errorf("cannot scan object: %w", err)
	}
	return h.wrong
}

func (h *Header) reset() {
	labels, owners, scratch := h.Labels, h.Owners, h.scratch
	clear(labels)
	clear(owners)
	*h = Header{Labels: labels[:0], Owners: owners[:0], scratch: scratch[:0]}
}

// fewLabels is the number of labels up to which addLabel searches linearly. Objects rarely have more.
const fewLabels = 64

// addLabel adds a label. The last of several labels with the same key wins.
func (h *Header) addLabel(key, value []byte) {
	if len(h.Labels) >= fewLabels {
		h.addOneOfMany(key, value)
		return
	}
	for j := range h.Labels {
		if bytes.Equal(h.Labels[j].Key, key) {
			h.Labels[j].Value = value
			return
		}
	}
	h.Labels = append(h.Labels, Pair{key, value})
}

func (h *Header) addOneOfMany(key, value []byte) {
	if h.byKey == nil {
		h.byKey = map[string]int{}
		for j, l := range h.Labels {
			h.byKey[string(l.Key)] = j
		}
	}
	if j, is := h.byKey[string(key)]; is {
		h.Labels[j].Value = value
		return
	}
	h.byKey[string(key)] = len(h.Labels)
	h.Labels = append(h.Labels, Pair{key, value})
}

// mistyped records the first member with a wrong type.
func (h *Header) mistyped(member string) {
	if h.wrong == nil {
		h.wrong = &FieldError{Member: member}
	}
}

// FieldError reports a metadata member whose type differs from the API.
type FieldError struct{ Member string }

func (e *FieldError) Error() string {
	return fmt.Sprintf("cannot read object: %s has the wrong type", e.Member)
}
