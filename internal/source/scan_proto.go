package source

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Field numbers of ObjectMeta in k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto. Field 1 of every kind is its
// ObjectMeta.
const (
	metaName              = 1
	metaNamespace         = 3
	metaUID               = 5
	metaResourceVersion   = 6
	metaGeneration        = 7
	metaDeletionTimestamp = 9
	metaLabels            = 11
	metaOwnerReferences   = 13
	metaFinalizers        = 14
	metaManagedFields     = 17
)

func scanProto(raw []byte, h *Header) error {
	var f frame.Field
	var err error
	for i := 0; i < len(raw); {
		start := i
		if f, i, err = frame.NextField(raw, i); err != nil {
			return fmt.Errorf("cannot scan object: %w", cutShort(err))
		}
		if f.Number != 1 || f.Type != frame.Bytes {
			continue
		}
		h.metadata = Span{start, i}
		if err := scanProtoMeta(raw, f.Start, f.End, h); err != nil {
			return fmt.Errorf("cannot scan object: %w", cutShort(err))
		}
	}
	return h.wrong
}

// cutShort replaces frame.ErrShort: the message is complete, so its lengths are wrong.
func cutShort(err error) error {
	if err == frame.ErrShort {
		return errCutMessage
	}
	return err
}

func scanProtoMeta(raw []byte, i, end int, h *Header) error {
	b := raw[:end:end]
	for i < end {
		start := i
		var f frame.Field
		var err error
		if f, i, err = frame.NextField(b, i); err != nil {
			return err
		}
		if f.Type != frame.Bytes {
			if f.Number == metaGeneration && f.Type == frame.Varint {
				h.Generation = int64(f.Value)
			}
			continue
		}
		v := b[f.Start:f.End:f.End]
		switch f.Number {
		case metaName:
			h.Name = v
		case metaNamespace:
			h.Namespace = v
		case metaUID:
			h.UID = v
		case metaResourceVersion:
			h.ResourceVersion = v
		case metaDeletionTimestamp:
			err = h.protoTime(v)
		case metaLabels:
			err = h.protoLabel(v)
		case metaOwnerReferences:
			err = h.protoOwner(v)
		case metaFinalizers:
			h.Finalizers++
		case metaManagedFields:
			if h.ManagedFields.Empty() {
				h.ManagedFields.Start = start
			}
			h.ManagedFields.End = i
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protoTime sets DeletionTimestamp from a Time message, formatted as in JSON: UTC with a resolution of one second.
func (h *Header) protoTime(v []byte) error {
	var seconds int64
	for i := 0; i < len(v); {
		f, next, err := frame.NextField(v, i)
		if err != nil {
			return err
		}
		if f.Number == 1 && f.Type == frame.Varint {
			seconds = int64(f.Value)
		}
		i = next
	}
	n := len(h.scratch)
	h.scratch = time.Unix(seconds, 0).UTC().AppendFormat(h.scratch, time.RFC3339)
	h.DeletionTimestamp = h.scratch[n:len(h.scratch):len(h.scratch)]
	return nil
}

func (h *Header) protoLabel(v []byte) error {
	var p Pair
	for i := 0; i < len(v); {
		f, next, err := frame.NextField(v, i)
		if err != nil {
			return err
		}
		if f.Type == frame.Bytes {
			switch f.Number {
			case 1:
				p.Key = v[f.Start:f.End:f.End]
			case 2:
				p.Value = v[f.Start:f.End:f.End]
			}
		}
		i = next
	}
	h.addLabel(p.Key, p.Value)
	return nil
}

func (h *Header) protoOwner(v []byte) error {
	var o Owner
	for i := 0; i < len(v); {
		f, next, err := frame.NextField(v, i)
		if err != nil {
			return err
		}
		i = next
		if f.Type == frame.Varint && f.Number == 6 {
			o.Controller = f.Value != 0
		}
		if f.Type != frame.Bytes {
			continue
		}
		s := v[f.Start:f.End:f.End]
		switch f.Number {
		case 1:
			o.Kind = s
		case 3:
			o.Name = s
		case 4:
			o.UID = s
		case 5:
			o.APIVersion = s
		}
	}
	h.Owners = append(h.Owners, o)
	return nil
}

// appendPrunedProto appends raw without managedFields to dst. meta is the span of the metadata with its tag and length.
// cut contains all managedFields. The scan has validated raw.
func appendPrunedProto(dst, raw []byte, meta, cut Span) []byte {
	dst = append(dst, raw[:meta.Start]...)
	f, _, _ := frame.NextField(raw, meta.Start)
	if cut.Start >= f.Start && cut.End <= f.End && onlyManaged(raw, cut) { // the usual layout
		dst = append(dst, 1<<3|frame.Bytes)
		dst = binary.AppendUvarint(dst, uint64(f.End-f.Start-(cut.End-cut.Start)))
		dst = append(dst, raw[f.Start:cut.Start]...)
		return append(dst, raw[cut.End:]...)
	}
	keep := 0
	walkKept(raw, f, func(start, end int) { keep += end - start })
	dst = append(dst, 1<<3|frame.Bytes)
	dst = binary.AppendUvarint(dst, uint64(keep))
	walkKept(raw, f, func(start, end int) { dst = append(dst, raw[start:end]...) })
	return append(dst, raw[meta.End:]...)
}

// onlyManaged reports whether cut contains only managedFields.
func onlyManaged(raw []byte, cut Span) bool {
	for i := cut.Start; i < cut.End; {
		f, next, err := frame.NextField(raw, i)
		if err != nil || f.Number != metaManagedFields {
			return false
		}
		i = next
	}
	return true
}

func walkKept(raw []byte, meta frame.Field, visit func(start, end int)) {
	for i := meta.Start; i < meta.End; {
		f, next, err := frame.NextField(raw, i)
		if err != nil {
			return
		}
		if f.Number != metaManagedFields {
			visit(i, next)
		}
		i = next
	}
}

// envelope decodes a runtime.Unknown: the magic number of four bytes, the type, and the raw message.
func envelope(b []byte) (apiVersion, kind, raw []byte, err error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, nil, nil, errNoEnvelope
	}
	for i := len(magic); i < len(b); {
		f, next, err := frame.NextField(b, i)
		if err != nil {
			return nil, nil, nil, cutShort(err)
		}
		i = next
		if f.Type != frame.Bytes {
			continue
		}
		switch v := b[f.Start:f.End:f.End]; f.Number {
		case 1:
			if apiVersion, kind, err = typeMeta(v); err != nil {
				return nil, nil, nil, err
			}
		case 2:
			raw = v
		}
	}
	return apiVersion, kind, raw, nil
}

func typeMeta(v []byte) (apiVersion, kind []byte, err error) {
	for i := 0; i < len(v); {
		f, next, err := frame.NextField(v, i)
		if err != nil {
			return nil, nil, cutShort(err)
		}
		if f.Type == frame.Bytes {
			switch f.Number {
			case 1:
				apiVersion = v[f.Start:f.End:f.End]
			case 2:
				kind = v[f.Start:f.End:f.End]
			}
		}
		i = next
	}
	return apiVersion, kind, nil
}

const magic = "k8s\x00"
