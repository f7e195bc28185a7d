package source

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// protoList decodes a list in protobuf item by item. The body is the magic number, then a runtime.Unknown whose field
// raw is the list. The items are field 2 of the list.
type protoList struct {
	at               protoState
	left             int // remaining bytes of raw
	apiVersion, kind string
	meta             listMeta
}

type protoState uint8

const (
	protoMagic protoState = iota
	protoOuter
	protoInner
	protoDone
)

func (d *protoList) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	if d.at == protoMagic {
		if len(b) < len(magic) {
			return 0, false, frame.ErrShort
		}
		if string(b[:len(magic)]) != magic {
			return 0, false, &ProtocolError{What: "no list", Excerpt: excerpt(b), Err: errNoEnvelope}
		}
		n, d.at = len(magic), protoOuter
	}
	for {
		if d.at == protoInner && d.left == 0 {
			d.at = protoOuter
		}
		if d.at == protoDone {
			return n, false, frame.ErrShort
		}
		if n >= len(b) {
			if d.at == protoOuter && eof {
				return d.end(n, e)
			}
			return n, false, frame.ErrShort
		}
		f, i, err := frame.FieldHead(b, n)
		if err != nil {
			return n, false, d.malformed(err)
		}
		if d.at == protoOuter && f.Number == 2 && f.Type == frame.Bytes {
			if d.kind == "Status" {
				return d.refusal(b, n, f)
			}
			if d.kind != "" {
				if _, err := checkList(d.kind, d.apiVersion, listMeta{version: "1"}); err != nil {
					return n, false, err
				}
			}
			d.at, d.left, n = protoInner, f.End-f.Start, i
			continue
		}
		if d.at == protoInner && f.End-n > d.left {
			return n, false, &ProtocolError{What: "malformed list", Err: errCutMessage}
		}
		if f.End > len(b) {
			return n, false, frame.ErrShort
		}
		begin := n
		n = f.End
		if d.at == protoOuter {
			if f.Number == 1 && f.Type == frame.Bytes {
				apiVersion, kind, err := typeMeta(b[f.Start:f.End])
				if err != nil {
					return n, false, d.malformed(err)
				}
				d.apiVersion, d.kind = string(apiVersion), string(kind)
			}
			continue
		}
		d.left -= f.End - begin
		if f.Type != frame.Bytes && f.Number != 2 {
			continue
		}
		switch f.Number {
		case 1:
			var m metav1.ListMeta
			if err := m.Unmarshal(b[f.Start:f.End]); err != nil {
				return n, false, d.malformed(err)
			}
			d.meta.version, d.meta.next = m.ResourceVersion, m.Continue
			if m.RemainingItemCount != nil {
				d.meta.remaining = *m.RemainingItemCount
			}
		case 2:
			e.reset(Protobuf)
			if f.Type == frame.Bytes {
				e.obj.Raw = b[f.Start:f.End:f.End]
				e.err = scanProto(e.obj.Raw, &e.obj.Header)
			} else {
				e.obj.Raw, e.err = b[begin:f.End:f.End], errNoObject
			}
			e.finishItem()
			return n, true, nil
		}
	}
}

// refusal decodes a Status, which must be complete in the buffer.
func (d *protoList) refusal(b []byte, n int, f frame.Field) (int, bool, error) {
	if f.End > len(b) {
		return n, false, frame.ErrShort
	}
	var s metav1.Status
	if err := s.Unmarshal(b[f.Start:f.End]); err != nil {
		return n, false, &ProtocolError{What: "malformed status", Err: err}
	}
	return n, false, refusalOf(s)
}

func (d *protoList) end(n int, e *event) (int, bool, error) {
	if d.kind == "" && d.meta.version == "" {
		return n, false, frame.ErrShort
	}
	m, err := checkList(d.kind, d.apiVersion, d.meta)
	if err != nil {
		return n, false, err
	}
	d.at = protoDone
	e.reset(Protobuf)
	e.kind, e.list = evListEnd, m
	return n, true, nil
}

func (d *protoList) malformed(err error) error {
	if isShort(err) {
		return err
	}
	return &ProtocolError{What: "malformed list", Err: err}
}
