package source

import (
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// With Config.Metadata the source requests PartialObjectMetadata, as client-go's metadata client does. Servers that do
// not support it send complete objects. A metadataDecoder reduces these to the same form before any other code sees
// them.

// partialKind is the kind of an object that the server has reduced to its metadata.
const partialKind = "PartialObjectMetadata"

// acceptMetadata returns the Accept header. The server can encode the metadata of every object in protobuf, including
// custom resources.
func acceptMetadata(watch bool) string {
	as := ";as=" + partialKind
	if !watch {
		as += "List"
	}
	as += ";g=" + metav1.GroupName + ";v=v1"
	return protobufType + as + ",application/json" + as + ",application/json"
}

const (
	metadataHead = `{"metadata":`
	metadataTail = `}`
)

// KeepMetadata reduces the object to its metadata. Raw then holds only the metadata, and the header has no kind if the
// server sent PartialObjectMetadata. The previous bytes of Raw are not modified. KeepMetadata allocates only for a JSON
// object with other members.
func (o *Object) KeepMetadata() {
	h := &o.Header
	if isPartial(h.Kind, h.APIVersion) {
		h.Kind, h.APIVersion = nil, nil
	}
	at := h.metadata
	switch {
	case at.Empty() || at.End > len(o.Raw):
		o.Raw, h.ManagedFields, h.metadata = nil, Span{}, Span{}
	case o.Encoding == Protobuf:
		o.Raw = o.Raw[at.Start:at.End:at.End]
		h.metadata.shift(-at.Start)
		h.ManagedFields.shift(-at.Start)
	case !o.isMetadata():
		raw := make([]byte, 0, len(metadataHead)+at.End-at.Start+len(metadataTail))
		raw = append(raw, metadataHead...)
		raw = append(raw, o.Raw[at.Start:at.End]...)
		o.Raw = append(raw, metadataTail...)
		moved := len(metadataHead) - at.Start
		h.metadata.shift(moved)
		h.ManagedFields.shift(moved)
	}
}

// isMetadata reports whether a JSON object has the form that KeepMetadata produces.
func (o *Object) isMetadata() bool {
	return o.Header.metadata.Start == len(metadataHead) && o.Header.metadata.End+len(metadataTail) == len(o.Raw) &&
		string(o.Raw[:len(metadataHead)]) == metadataHead
}

func isPartial(kind, apiVersion []byte) bool {
	return string(kind) == partialKind && strings.HasPrefix(string(apiVersion), metav1.GroupName+"/")
}

// metadataDecoder reduces the objects of another decoder to their metadata.
type metadataDecoder struct{ discreetDecoder }

func (d metadataDecoder) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	if n, got, err = d.discreetDecoder.next(b, eof, e); !got {
		return n, got, err
	}
	switch e.kind {
	case evListEnd:
		if isPartial([]byte(e.list.kind), []byte(e.list.apiVersion)) {
			e.list.kind, e.list.apiVersion = "", ""
		}
	case evObject, evBookmark:
		e.obj.KeepMetadata()
	}
	return n, got, err
}

// withoutExcerpt removes the excerpt from a ProtocolError, unless it begins with "<". That is an HTML page of a proxy
// and not an object.
func withoutExcerpt(err error) {
	malformed, ok := errors.AsType[*ProtocolError](err)
	if ok && !strings.HasPrefix(strings.TrimSpace(malformed.Excerpt), "<") {
		malformed.Excerpt = ""
	}
}
