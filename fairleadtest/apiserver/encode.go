package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// encoding is the encoding that the client requested with its Accept header.
type encoding struct {
	proto   bool // application/vnd.kubernetes.protobuf, else JSON
	partial bool // PartialObjectMetadata instead of the whole object
}

const (
	typeJSON       = "application/json"
	typeProto      = "application/vnd.kubernetes.protobuf"
	typeProtoWatch = "application/vnd.kubernetes.protobuf;stream=watch"

	partialPrefix = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`
)

// protoMagic starts every protobuf body; runtime.Unknown follows.
var protoMagic = []byte{'k', '8', 's', 0}

func (e encoding) contentType(watching bool) string {
	switch {
	case e.proto && watching:
		return typeProtoWatch
	case e.proto:
		return typeProto
	}
	return typeJSON
}

// appendObject appends a whole body: JSON with kind and apiVersion, or protobuf with magic and envelope.
func (e encoding) appendObject(dst []byte, o *object) ([]byte, error) {
	switch {
	case e.proto && e.partial:
		b, err := o.partialProto()
		return appendEnvelope(dst, "meta.k8s.io/v1", "PartialObjectMetadata", b), err
	case e.proto:
		b, err := o.protoBytes()
		return appendEnvelope(dst, o.table.res.apiVersion(), o.table.res.Kind, b), err
	case e.partial:
		b, err := o.partialJSON()
		return append(dst, b...), err
	}
	b, err := o.bareJSON()
	if err != nil || o.verbatim {
		return append(dst, b...), err
	}
	dst = append(dst, o.table.prefix...)
	if len(b) == 2 { // {}
		dst = dst[:len(dst)-1]
	}
	return append(dst, b[1:]...), nil
}

// appendItem appends an object as a list item. Built-in kinds have no kind and apiVersion there.
func (e encoding) appendItem(dst []byte, o *object) ([]byte, error) {
	switch {
	case e.proto:
		b, err := o.protoBytesFor(e.partial)
		return appendField(dst, 2, b), err
	case e.partial || !o.table.typed:
		return e.appendObject(dst, o)
	}
	b, err := o.bareJSON()
	return append(dst, b...), err
}

func (o *object) protoBytesFor(partial bool) ([]byte, error) {
	if partial {
		return o.partialProto()
	}
	return o.protoBytes()
}

// listKind returns kind and apiVersion of a list in this encoding.
func (e encoding) listKind(t *table) (kind, apiVersion string) {
	if e.partial {
		return "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return t.res.Kind + "List", t.res.apiVersion()
}

// listHead and listTail return the bytes before and after the items of a list. A comma separates JSON items.
func (e encoding) listHead(t *table, meta metav1.ListMeta) ([]byte, error) {
	kind, apiVersion := e.listKind(t)
	if e.proto {
		b, err := meta.Marshal()
		return appendField(nil, 1, b), err
	}
	b, err := json.Marshal(meta)
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, apiVersion, b), err
}

// appendFrame appends a watch event with its frame: a line of JSON, or length and protobuf.
func (e encoding) appendFrame(dst []byte, typ watch.EventType, o *object) ([]byte, error) {
	if !e.proto {
		dst = append(dst, `{"type":"`...)
		dst = append(dst, typ...)
		dst = append(dst, `","object":`...)
		dst, err := e.appendObject(dst, o)
		return append(dst, "}\n"...), err
	}
	body, err := e.appendObject(nil, o)
	return appendProtoFrame(dst, typ, body), err
}

// appendRawFrame frames an encoded body.
func (e encoding) appendRawFrame(dst []byte, typ watch.EventType, body []byte) []byte {
	if e.proto {
		return appendProtoFrame(dst, typ, body)
	}
	return fmt.Appendf(dst, "{\"type\":%q,\"object\":%s}\n", typ, body)
}

func appendProtoFrame(dst []byte, typ watch.EventType, body []byte) []byte {
	raw := fieldSize(len(body))
	size := fieldSize(len(typ)) + fieldSize(raw)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = appendField(dst, 1, []byte(typ))
	dst = append(dst, 2<<3|2)
	dst = binary.AppendUvarint(dst, uint64(raw))
	return appendField(dst, 1, body)
}

// bookmark returns the object of a BOOKMARK: kind, apiVersion, version, and the given annotations.
func (e encoding) bookmark(t *table, version string, annotations map[string]string) ([]byte, error) {
	kind, apiVersion := t.res.Kind, t.res.apiVersion()
	if e.partial {
		kind, apiVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	meta := metav1.ObjectMeta{ResourceVersion: version, Annotations: annotations}
	if e.proto {
		b, err := meta.Marshal()
		return appendEnvelope(nil, apiVersion, kind, appendField(nil, 1, b)), err
	}
	fields := map[string]any{"resourceVersion": version}
	if annotations != nil {
		fields["annotations"] = annotations
	}
	b, err := json.Marshal(fields)
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s}`, kind, apiVersion, b), err
}

// status encodes a Status as a body.
func (e encoding) status(s metav1.Status) []byte {
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if e.proto {
		if b, err := s.Marshal(); err == nil {
			return appendEnvelope(nil, "v1", "Status", b)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		b = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":` + strconv.Quote(err.Error()) + `}`)
	}
	return b
}

// marshaler is implemented by the generated protobuf code of the Kubernetes types.
type marshaler interface{ Marshal() ([]byte, error) }

func marshalProto(obj runtime.Object) ([]byte, error) {
	m, ok := obj.(marshaler)
	if !ok {
		return nil, fmt.Errorf("cannot encode %T as protobuf: it has no such encoding", obj)
	}
	b, err := m.Marshal()
	if b == nil {
		b = []byte{}
	}
	return b, err
}

func partialProto(metadata map[string]any) ([]byte, error) {
	var p metav1.PartialObjectMetadata
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": metadata}, &p); err != nil {
		return nil, err
	}
	return p.Marshal()
}

// appendEnvelope appends magic and runtime.Unknown: type, message, empty content encoding and content type.
func appendEnvelope(dst []byte, apiVersion, kind string, message []byte) []byte {
	dst = append(dst, protoMagic...)
	dst = appendTypeMeta(dst, apiVersion, kind)
	dst = appendField(dst, 2, message)
	return append(dst, 3<<3|2, 0, 4<<3|2, 0)
}

// appendTypeMeta appends field 1 of runtime.Unknown.
func appendTypeMeta(dst []byte, apiVersion, kind string) []byte {
	dst = append(dst, 1<<3|2)
	dst = binary.AppendUvarint(dst, uint64(fieldSize(len(apiVersion))+fieldSize(len(kind))))
	dst = appendField(dst, 1, []byte(apiVersion))
	return appendField(dst, 2, []byte(kind))
}

// appendField appends a length-delimited field; fieldSize is its size when the field number is below 16.
func appendField(dst []byte, number byte, value []byte) []byte {
	dst = append(dst, number<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

func fieldSize(length int) int {
	n := 1
	for l := length; l >= 0x80; l >>= 7 {
		n++
	}
	return 1 + n + length
}

// appendLength starts a length-delimited field; the value follows.
func appendLength(dst []byte, number byte, length int) []byte {
	return binary.AppendUvarint(append(dst, number<<3|2), uint64(length))
}
