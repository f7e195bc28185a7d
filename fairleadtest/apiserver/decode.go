package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	maxBody   = 3 << 20     // of a request, in bytes
	maxStored = 3 << 20 / 2 // of an object, in bytes; the default limit of etcd
	typeYAML  = "application/yaml"
	unhandled = "the object provided is unrecognized (must be of type %s): %v"
)

// readBody reads the body of a write. tooLarge reports that it exceeds the limit of the server.
func readBody(r *http.Request) (body []byte, tooLarge bool, err error) {
	body, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if len(body) > maxBody {
		_, err = io.Copy(io.Discard, r.Body)
		return nil, true, err
	}
	return body, false, err
}

// decodeObject decodes the object in the body of a create or an update: JSON, YAML or, for a built-in kind, protobuf.
func (x *exchange) decodeObject(strict string) (*unstructured.Unstructured, error) {
	media, err := x.bodyType()
	if err != nil {
		return nil, err
	}
	content, doubts, err := x.table.decode(media, x.req.Body)
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	if err := x.heed(strict, doubts); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// heed turns the doubts of a decoder into warnings or an error, according to fieldValidation.
func (x *exchange) heed(strict string, doubts []error) error {
	if len(doubts) == 0 || strict == metav1.FieldValidationIgnore {
		return nil
	}
	if strict == metav1.FieldValidationStrict {
		return runtime.NewStrictDecodingError(doubts)
	}
	for _, d := range doubts {
		x.warnings = append(x.warnings, d.Error())
	}
	return nil
}

// bodyType returns the media type of the body. Default: JSON.
func (x *exchange) bodyType() (string, error) {
	header := x.r.Header.Get("Content-Type")
	if header == "" {
		return typeJSON, nil
	}
	media, _, err := mime.ParseMediaType(header)
	if err != nil || media != typeJSON && media != typeYAML && media != typeProto {
		return "", unsupportedMediaType(header)
	}
	return media, nil
}

// decode decodes an object of the table's kind or of another kind of the same version. doubts are unknown or duplicate
// fields.
func (t *table) decode(media string, body []byte) (content map[string]any, doubts []error, err error) {
	if !t.typed {
		return t.decodeCustom(media, body)
	}
	into, err := t.res.newTyped()
	if err != nil {
		return nil, nil, err
	}
	info, ok := runtime.SerializerInfoForMediaType(builtIn().codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, nil, fmt.Errorf("no serializer for %s", media)
	}
	decoder := info.StrictSerializer
	if decoder == nil {
		decoder = info.Serializer
	}
	gvk := t.res.GVK()
	obj, actual, err := decoder.Decode(body, &gvk, into)
	if failed, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		doubts, err = failed.Errors(), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf(unhandled, t.res.Kind, err)
	}
	if t.strict {
		setDefaults(obj)
	}
	if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, nil, err
	}
	if t.res.Group == "" { // the writer owns the fields added by defaulting and conversion
		switch t.res.Kind {
		case "Secret":
			prepareSecret(content, nil)
		case "Namespace":
			labelNamespace(content)
		}
	}
	if m, ok := obj.(metav1.Object); ok {
		keepReset(content, m.GetManagedFields())
	}
	content["kind"], content["apiVersion"] = actual.Kind, actual.GroupVersion().String()
	return content, doubts, nil
}

// decodeCustom decodes an object for which only the metadata has a type.
func (t *table) decodeCustom(media string, body []byte) (content map[string]any, doubts []error, err error) {
	switch {
	case media == typeYAML:
		body, err = yaml.YAMLToJSON(body)
	case media == typeProto && t.custom != nil && t.custom.version.FromProtobuf != nil:
		body, err = t.custom.version.FromProtobuf(body)
	}
	if err != nil {
		return nil, nil, fmt.Errorf(unhandled, t.res.Kind, err)
	}
	if doubts, err = kjson.UnmarshalStrict(body, &content); err != nil {
		return nil, nil, fmt.Errorf(unhandled, t.res.Kind, err)
	}
	obj := unstructured.Unstructured{Object: content}
	if content == nil || obj.GetKind() == "" || obj.GetAPIVersion() == "" {
		return nil, nil, fmt.Errorf("object 'Kind' or 'apiVersion' is missing in %.100q", body)
	}
	more, err := typedMeta(content)
	doubts = append(doubts, more...)
	if err == nil && t.custom != nil && obj.GroupVersionKind() == t.res.GVK() {
		more, err = t.custom.decoded(content)
		doubts = append(doubts, more...)
	}
	return content, doubts, err
}

// typedMeta converts metadata through its Go type, which drops empty and unknown fields.
func typedMeta(content map[string]any) (doubts []error, err error) {
	raw, there := content["metadata"]
	if !there || raw == nil {
		delete(content, "metadata")
		return nil, nil
	}
	data, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var meta metav1.ObjectMeta
	if doubts, err = kjson.UnmarshalStrict(data, &meta); err != nil {
		return nil, fmt.Errorf("malformed metadata: %w", err)
	}
	typed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return nil, err
	}
	if typed["creationTimestamp"] == nil {
		delete(typed, "creationTimestamp")
	}
	content["metadata"] = typed
	keepReset(content, meta.ManagedFields)
	return doubts, nil
}

// keepReset keeps managedFields that the client sent empty to reset them.
func keepReset(content map[string]any, sent []metav1.ManagedFieldsEntry) {
	if meta, ok := content["metadata"].(map[string]any); ok && sent != nil && len(sent) == 0 {
		meta["managedFields"] = []any{}
	}
}

// decodeDeleteOptions decodes the body of a delete. Its kind may be missing or in any group.
func decodeDeleteOptions(media string, body []byte, into *metav1.DeleteOptions) error {
	var err error
	if media == typeProto {
		_, _, err = builtIn().codecs.UniversalDeserializer().Decode(body, nil, into)
	} else {
		if media == typeYAML {
			body, err = yaml.YAMLToJSON(body)
		}
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, into)
		}
	}
	if err == nil && into.Kind != "" && into.Kind != "DeleteOptions" {
		err = fmt.Errorf("it is a %s", into.Kind)
	}
	if err != nil {
		return errors.NewBadRequest("the delete options are unrecognized: " + err.Error())
	}
	return nil
}

// decodePatched decodes the result of a patch.
func (t *table) decodePatched(data []byte) (next *unstructured.Unstructured, doubts []error, err error) {
	content, doubts, err := t.decode(typeJSON, data)
	if err != nil {
		return nil, nil, unfit(string(data), err)
	}
	obj := &unstructured.Unstructured{Object: content}
	if obj.GroupVersionKind().GroupVersion() != t.res.GVK().GroupVersion() || t.typed && obj.GetKind() != t.res.Kind {
		return nil, nil, unfit(obj.GroupVersionKind().String(), fmt.Errorf("it is no %s", t.res.Kind))
	}
	return obj, doubts, nil
}

// unfit returns the error for a patch whose result is not an object of the kind.
func unfit(value string, cause error) error {
	return errors.NewInvalid(schemaless, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, cause.Error())})
}

// unmarshalYAML decodes an apply configuration.
func unmarshalYAML(body []byte) (map[string]any, error) {
	data, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, utiljson.Unmarshal(data, &m)
}

func unsupportedMediaType(contentType string) error {
	return &errors.StatusError{ErrStatus: failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		fmt.Sprintf("the body of the request was in an unknown format: %q", contentType))}
}
