package source

import (
	"encoding/binary"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// protoWatch decodes watch events in protobuf: a length of four bytes, then a metav1.WatchEvent whose object is wrapped
// in a runtime.Unknown.
type protoWatch struct{}

// maxFrame bounds the size of one frame in bytes, so that a corrupt length cannot exhaust memory. The API server stores
// at most 1.5 MiB per object by default, but aggregated servers may store more.
const maxFrame = 1 << 29

func (d *protoWatch) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	if len(b) < 4 {
		return 0, false, frame.ErrShort
	}
	size := int(binary.BigEndian.Uint32(b))
	if size > maxFrame {
		return 0, false, &ProtocolError{What: "watch event of more than 512 MiB", Excerpt: excerpt(b)}
	}
	if len(b)-4 < size {
		return 0, false, frame.ErrShort
	}
	n = 4 + size
	e.reset(Protobuf)
	if err := d.scan(b[4:n:n], e); err != nil {
		if _, final := err.(*ProtocolError); final {
			return n, false, err
		}
		e.reset(Protobuf)
		e.kind, e.err, e.obj.Raw = evGarbage, err, b[4:n:n]
	}
	return n, true, nil
}

func (d *protoWatch) scan(b []byte, e *event) error {
	if len(b) >= len(magic) && string(b[:len(magic)]) == magic {
		_, _, raw, err := envelope(b)
		if err != nil {
			return err
		}
		b = raw
	}
	var eventType string
	var object []byte
	for i := 0; i < len(b); {
		f, next, err := frame.NextField(b, i)
		if err != nil {
			return cutShort(err)
		}
		i = next
		if f.Type != frame.Bytes {
			continue
		}
		switch f.Number {
		case 1:
			eventType = typeName(b[f.Start:f.End])
		case 2: // runtime.RawExtension
			for j := f.Start; j < f.End; {
				g, next, err := frame.NextField(b[:f.End], j)
				if err != nil {
					return cutShort(err)
				}
				if g.Number == 1 && g.Type == frame.Bytes {
					object = b[g.Start:g.End:g.End]
				}
				j = next
			}
		}
	}
	apiVersion, kind, raw, err := envelope(object)
	if err != nil {
		return err
	}
	e.obj.Raw = raw
	if string(kind) == "Status" {
		e.obj.Header.APIVersion, e.obj.Header.Kind = apiVersion, kind
		return e.finishEvent(eventType) // the metadata of a Status is a ListMeta, so it is not scanned
	}
	h := &e.obj.Header
	if err := scanProto(raw, h); err != nil {
		e.err = err
	}
	h.APIVersion, h.Kind = apiVersion, kind
	return e.finishEvent(eventType)
}
