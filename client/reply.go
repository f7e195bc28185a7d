package client

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

// reply is a good answer to a write, as far as it can be read.
type reply struct {
	code int
	body []byte                  // as it was sent, decompressed
	kind schema.GroupVersionKind // of what is answered; empty: it cannot be read
	enc  source.Encoding
	raw  []byte // what is answered, out of its envelope
	head *source.Header
}

// protobufMagic is in front of the envelope of every answer in protobuf.
var protobufMagic = []byte("k8s\x00")

// read reads an answer; the header is filled.
func read(code int, body []byte, head *source.Header) *reply {
	a := &reply{code: code, body: body, head: head}
	var kind schema.GroupVersionKind
	var ok bool
	if a.enc, a.raw, kind, ok = unwrap(body); !ok || len(a.raw) == 0 || source.Scan(a.enc, a.raw, head) != nil {
		return a
	}
	if a.kind = kind; a.enc == source.JSON {
		a.kind = schema.FromAPIVersionAndKind(string(head.APIVersion), string(head.Kind))
	}
	return a
}

// unwrap takes what was sent out of its envelope, which protobuf has, and which says of what kind it is.
func unwrap(body []byte) (enc source.Encoding, raw []byte, kind schema.GroupVersionKind, ok bool) {
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

// message is a type of the API that has both encodings.
type message interface{ Unmarshal([]byte) error }

// decode reads what was sent, out of its envelope.
func decode(enc source.Encoding, raw []byte, into message) error {
	if enc == source.Protobuf {
		return into.Unmarshal(raw)
	}
	return json.Unmarshal(raw, into)
}

// decode reads what was answered.
func (a *reply) decode(into message) error { return decode(a.enc, a.raw, into) }

func (a *reply) readable() bool { return a.kind.Kind != "" }

// version is that of the object, also where only a part or a subresource of it is answered; "" if none is named.
func (a *reply) version() string {
	if !a.readable() {
		return ""
	}
	return string(a.head.ResourceVersion)
}

// status says that there is no object in the answer, but only that the request was good.
func (a *reply) status() bool {
	return a.kind == metav1.SchemeGroupVersion.WithKind("Status") || a.kind.Kind == "Status" && a.kind.Group == ""
}

// metadata says that the answer is of an object, but not all of it.
func (a *reply) metadata() bool {
	return a.kind.Group == metav1.GroupName && a.kind.Kind == "PartialObjectMetadata"
}

// over returns the uid of an answered object that has come to its end: the write took away its last finalizer, and the
// server has dropped it. sure is false where the answer does not tell.
func (a *reply) over(resource schema.GroupResource) (uid types.UID, sure bool) {
	if len(a.head.DeletionTimestamp) == 0 || a.head.Finalizers > 0 {
		return "", true
	}
	var o metav1.PartialObjectMetadata
	if a.decode(&o) != nil {
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

// keptBySpec says whether the answered object is kept by the finalizers of its spec, as a namespace that is being
// deleted is until it is empty. The metadata alone do not tell.
func (a *reply) keptBySpec(resource schema.GroupResource) (kept, sure bool) {
	if resource != (schema.GroupResource{Resource: "namespaces"}) {
		return false, true
	}
	if a.metadata() {
		return false, false
	}
	var ns corev1.Namespace
	if a.kind.Kind != "Namespace" || a.decode(&ns) != nil {
		return false, true
	}
	return len(ns.Spec.Finalizers) > 0, true
}

// deleted reads the answer to a delete: the uid of what is gone, if it is named. sure is false where the answer does
// not tell whether it is.
func (a *reply) deleted(resource schema.GroupResource) (gone bool, uid types.UID, sure bool) {
	gone, uid, err := store.ParseDeletion(a.body)
	switch {
	case err != nil || !a.readable() || a.status() && a.code == http.StatusAccepted:
		return false, "", false
	case !gone || a.status():
		return gone, uid, true
	}
	kept, sure := a.keptBySpec(resource)
	return !kept && sure, uid, sure
}
