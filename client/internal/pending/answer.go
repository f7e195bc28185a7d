package pending

import (
	"bytes"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Answer is a successful answer to a write, as far as it can be decoded.
type Answer struct {
	code int
	body []byte                  // decompressed
	kind schema.GroupVersionKind // of the answered object; empty if the answer cannot be decoded
	enc  source.Encoding
	raw  []byte // the answered object without its envelope
	head *source.Header
}

// protobufMagic is the prefix of every answer in protobuf.
var protobufMagic = []byte("k8s\x00")

// Unknown returns an answer whose body cannot be decoded.
func Unknown(code int) *Answer { return &Answer{code: code} }

// Read decodes the body of an answer and fills head. The answer refers to body and head.
func Read(code int, body []byte, head *source.Header) *Answer {
	a := &Answer{code: code, body: body, head: head}
	var kind schema.GroupVersionKind
	var ok bool
	if a.enc, a.raw, kind, ok = Unwrap(body); !ok || len(a.raw) == 0 || source.Scan(a.enc, a.raw, head) != nil {
		return a
	}
	if a.kind = kind; a.enc == source.JSON {
		a.kind = schema.FromAPIVersionAndKind(string(head.APIVersion), string(head.Kind))
	}
	return a
}

// Unwrap removes the envelope of a protobuf body and returns the kind that the envelope names. JSON has no envelope.
func Unwrap(body []byte) (enc source.Encoding, raw []byte, kind schema.GroupVersionKind, ok bool) {
	rest, wrapped := bytes.CutPrefix(body, protobufMagic)
	if !wrapped {
		return source.JSON, body, kind, true
	}
	var envelope runtime.Unknown
	if envelope.Unmarshal(rest) != nil || envelope.ContentEncoding != "" {
		return source.Protobuf, nil, kind, false
	}
	return source.Protobuf, envelope.Raw, envelope.GroupVersionKind(), true
}

// Message is an API type with both encodings.
type Message interface{ Unmarshal([]byte) error }

// Decode decodes a body without its envelope.
func Decode(enc source.Encoding, raw []byte, into Message) error {
	if enc == source.Protobuf {
		return into.Unmarshal(raw)
	}
	return json.Unmarshal(raw, into)
}

// Decode decodes the answered object.
func (a *Answer) Decode(into Message) error { return Decode(a.enc, a.raw, into) }

// Readable reports whether the answer could be decoded. Only then is its header set.
func (a *Answer) Readable() bool { return a.kind.Kind != "" }

// version returns the resourceVersion of the object, also if the answer is a part or a subresource of it; "" if
// unknown.
func (a *Answer) version() string {
	if !a.Readable() {
		return ""
	}
	return string(a.head.ResourceVersion)
}

// Status reports whether the answer is a Status, which contains no object.
func (a *Answer) Status() bool {
	return a.kind == metav1.SchemeGroupVersion.WithKind("Status") || a.kind.Kind == "Status" && a.kind.Group == ""
}

// metadata reports whether the answer contains only the metadata of an object.
func (a *Answer) metadata() bool {
	return a.kind.Group == metav1.GroupName && a.kind.Kind == "PartialObjectMetadata"
}

// released returns the uid of an answered object that no longer exists because the write removed its last finalizer. It
// returns "" if the object still exists. sure is false if the answer does not determine that.
func (a *Answer) released(resource schema.GroupResource) (uid types.UID, sure bool) {
	if len(a.head.DeletionTimestamp) == 0 || a.head.Finalizers > 0 {
		return "", true
	}
	var o metav1.PartialObjectMetadata
	if a.Decode(&o) != nil {
		return "", false
	}
	if grace := o.DeletionGracePeriodSeconds; grace != nil && *grace > 0 {
		return "", true
	}
	if kept, sure := a.keptBySpec(resource); kept || !sure {
		return "", sure
	}
	return o.UID, true
}

// keptBySpec reports whether the finalizers of the spec keep the answered object, as for a namespace that is not empty
// yet. sure is false if the answer has only metadata.
func (a *Answer) keptBySpec(resource schema.GroupResource) (kept, sure bool) {
	if resource != (schema.GroupResource{Resource: "namespaces"}) {
		return false, true
	}
	if a.metadata() {
		return false, false
	}
	var ns corev1.Namespace
	if a.kind.Kind != "Namespace" || a.Decode(&ns) != nil {
		return false, true
	}
	return len(ns.Spec.Finalizers) > 0, true
}

// deleted decodes the answer to a delete. gone reports whether the object no longer exists; uid may be empty. sure is
// false if the answer does not determine that.
func (a *Answer) deleted(resource schema.GroupResource) (gone bool, uid types.UID, sure bool) {
	gone, uid, err := store.ParseDeletion(a.body)
	switch {
	case err != nil || !a.Readable() || a.Status() && a.code == http.StatusAccepted:
		return false, "", false
	case !gone || a.Status():
		return gone, uid, true
	}
	kept, sure := a.keptBySpec(resource)
	return !kept && sure, uid, sure
}
