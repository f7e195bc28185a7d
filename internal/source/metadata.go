package source

import (
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where only the metadata of objects is wanted, the server is asked for PartialObjectMetadata, as client-go's metadata
// client asks. Servers that do not know it send whole objects: they are cut here, before anybody sees them, so that
// both are handed over in one form.

// partialKind is what the server calls an object that it has reduced to its metadata.
const partialKind = "PartialObjectMetadata"

// acceptMetadata is what to ask for. All objects have their metadata in protobuf, custom resources too.
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

// KeepMetadata reduces the object to its metadata: Raw holds nothing else then, and the header has no kind if the
// server called it PartialObjectMetadata. The bytes that Raw had before are left as they are. It costs nothing if
// there is nothing else in the object, and one allocation for JSON that has more.
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

// isMetadata says whether an object in JSON has the form that KeepMetadata gives it.
func (o *Object) isMetadata() bool {
	return o.Header.metadata.Start == len(metadataHead) && o.Header.metadata.End+len(metadataTail) == len(o.Raw) &&
		string(o.Raw[:len(metadataHead)]) == metadataHead
}

func isPartial(kind, apiVersion []byte) bool {
	return string(kind) == partialKind && strings.HasPrefix(string(apiVersion), metav1.GroupName+"/")
}

// metadataDecoder reduces what another decoder finds.
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

// withoutExcerpt leaves of what came instead of an answer only what is surely no object: a page of a proxy.
func withoutExcerpt(err error) {
	if odd, ok := errors.AsType[*ProtocolError](err); ok && !strings.HasPrefix(strings.TrimSpace(odd.Excerpt), "<") {
		odd.Excerpt = ""
	}
}
