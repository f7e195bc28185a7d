package call

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// protobufMagic precedes every protobuf body of Kubernetes.
var protobufMagic = []byte("k8s\x00")

// encode returns the body of a request and its content type. It does not modify the object, because others may be
// reading it. If a typed object lacks its kind, encode writes the kind into the encoding instead.
func encode(r *Request) (body []byte, contentType string, err error) {
	contentType = r.ContentType
	switch {
	case r.Verb == VerbApply:
		contentType = string(types.ApplyYAMLPatchType) // JSON is YAML
	case r.Verb == VerbPatch:
		contentType = string(r.PatchType)
	case contentType == "":
		contentType = JSON
	}
	if r.Body != nil || r.Object == nil {
		return r.Body, contentType, nil
	}
	gvk := r.Object.GetObjectKind().GroupVersionKind()
	missing := gvk.Empty()
	if missing {
		gvk = r.gvk()
	}
	if contentType == Protobuf {
		body, err = encodeProtobuf(r.Object, gvk)
		return body, contentType, err
	}
	body, err = json.Marshal(r.Object)
	if err != nil {
		return nil, "", fmt.Errorf("cannot encode %s as json: %w", gvk.Kind, err)
	}
	if missing && gvk.Kind != "" {
		body = withKind(body, gvk)
	}
	return body, contentType, nil
}

// gvk returns the kind of the request's object, or an empty kind if the request does not name it. The body of a
// subresource often has another group (autoscaling Scale, policy Eviction), so gvk is empty for it.
func (r *Request) gvk() schema.GroupVersionKind {
	if r.Kind == "" || (r.Subresource != "" && r.Subresource != "status") {
		return schema.GroupVersionKind{}
	}
	return r.Resource.GroupVersion().WithKind(r.Kind)
}

// withKind inserts kind and apiVersion at the start of a JSON object that has neither.
func withKind(body []byte, gvk schema.GroupVersionKind) []byte {
	rest, ok := bytes.CutPrefix(body, []byte("{"))
	if !ok {
		return body
	}
	kind, _ := json.Marshal(gvk.Kind)
	version, _ := json.Marshal(gvk.GroupVersion().String())
	out := make([]byte, 0, len(body)+len(kind)+len(version)+26)
	out = append(out, `{"kind":`...)
	out = append(out, kind...)
	out = append(out, `,"apiVersion":`...)
	out = append(out, version...)
	if !bytes.HasPrefix(rest, []byte("}")) {
		out = append(out, ',')
	}
	return append(out, rest...)
}

func encodeProtobuf(obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	m, ok := obj.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("cannot encode %T as protobuf: the type has no protobuf form", obj)
	}
	raw, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T as protobuf: %w", obj, err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}, Raw: raw}
	rest, err := u.Marshal()
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T as protobuf: %w", obj, err)
	}
	return append(bytes.Clone(protobufMagic), rest...), nil
}

// Into decodes the answer into obj. The type of obj must match the answer or, for JSON answers only, be unstructured.
func (a *Answer) Into(obj runtime.Object) error { return decode(a.Raw, obj) }

func decode(raw []byte, obj runtime.Object) error {
	if rest, ok := bytes.CutPrefix(raw, protobufMagic); ok {
		m, ok := obj.(interface{ Unmarshal([]byte) error })
		if !ok {
			return fmt.Errorf("cannot decode a protobuf answer into %T: the type has no protobuf form", obj)
		}
		var u runtime.Unknown
		if err := u.Unmarshal(rest); err != nil {
			return fmt.Errorf("cannot decode the answer: %w", &protocolError{what: err.Error()})
		}
		if err := m.Unmarshal(u.Raw); err != nil {
			return fmt.Errorf("cannot decode the answer into %T: %w", obj, err)
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(u.APIVersion, u.Kind))
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return fmt.Errorf("cannot decode the answer into %T: %w", obj, err)
	}
	return nil
}

// mediaType returns a Content-Type without its parameters.
func mediaType(header string) string {
	t, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}
	return t
}
