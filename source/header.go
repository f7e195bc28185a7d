package source

import (
	"fmt"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Encoding is the wire form of an object's bytes.
type Encoding uint8

const (
	JSON     Encoding = iota
	Protobuf          // the bare message, without the k8s envelope
)

func (e Encoding) String() string {
	if e == Protobuf {
		return "protobuf"
	}
	return "json"
}

// Header is what a cache needs to know of an object, found while its structure is validated. Every slice aliases the
// object's bytes, or scratch memory of the Header where an escape had to be resolved, and is valid as long as both are.
type Header struct {
	APIVersion, Kind                      []byte // empty for most items of a list
	Namespace, Name, UID, ResourceVersion []byte
	Generation                            int64
	DeletionTimestamp                     []byte // RFC 3339; empty: not being deleted
	Labels                                []Pair
	Owners                                []Owner
	Finalizers                            int  // how many there are
	ManagedFields                         Span // zero if there are none

	metadata Span // of the value of metadata; with its tag and length for protobuf
	scratch  []byte
	wrong    error // first member of a wrong type
}

// Pair is one label.
type Pair struct{ Key, Value []byte }

// Owner is one owner reference.
type Owner struct {
	UID, Kind, Name, APIVersion []byte
	Controller                  bool
}

// Span is a range of an object's bytes. For JSON, cutting the span of managedFields leaves valid JSON, for its comma is
// included. For protobuf the lengths around it change too: see [Object.AppendPruned].
type Span struct{ Start, End int }

// Empty says that the span covers nothing.
func (s Span) Empty() bool { return s.Start >= s.End }

// Object is one object as it came over the wire. It is valid only during the call that it is passed to.
type Object struct {
	Raw      []byte
	Encoding Encoding
	Header   Header
}

// AppendPruned appends the object's bytes without its managedFields to dst.
func (o *Object) AppendPruned(dst []byte) []byte {
	cut := o.Header.ManagedFields
	switch {
	case cut.Empty():
		return append(dst, o.Raw...)
	case o.Encoding == Protobuf:
		return appendPrunedProto(dst, o.Raw, o.Header.metadata)
	}
	dst = append(dst, o.Raw[:cut.Start]...)
	return append(dst, o.Raw[cut.End:]...)
}

// Scan reads the header of raw, which holds exactly one object, into h and validates the structure of all of raw. It does
// not allocate when h is reused. A member of a wrong type is an error, but the rest of the header is filled all the same,
// so that a report can name the object.
func Scan(enc Encoding, raw []byte, h *Header) error {
	h.reset()
	if enc == Protobuf {
		return scanProto(raw, h)
	}
	i, err := scanJSON(raw, frame.SkipSpace(raw, 0), h)
	if err == nil {
		if i = frame.SkipSpace(raw, i); i < len(raw) {
			err = frame.Syntax(i, "nothing behind the object")
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

// mistyped notes the first member that does not have the type that the API gives it.
func (h *Header) mistyped(member string) {
	if h.wrong == nil {
		h.wrong = &FieldError{Member: member}
	}
}

// FieldError says that a member of an object's metadata is not of the type that the API gives it.
type FieldError struct{ Member string }

func (e *FieldError) Error() string {
	return fmt.Sprintf("cannot read object: %s has the wrong type", e.Member)
}
