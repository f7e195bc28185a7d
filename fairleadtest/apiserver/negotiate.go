package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// negotiate picks the first accepted encoding that t (nil: no resource) can be sent in. Tables are never sent.
func negotiate(accept string, t *table) (encoding, bool) {
	if strings.TrimSpace(accept) == "" {
		return encoding{}, true
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		var e encoding
		switch as := params["as"]; as {
		case "":
		case "PartialObjectMetadata", "PartialObjectMetadataList":
			e.partial = true
		default:
			continue
		}
		switch media {
		case typeJSON, "application/*", "*/*":
			return e, true
		case typeProto:
			if t == nil || t.typed || e.partial {
				e.proto = true
				return e, true
			}
		}
	}
	return encoding{}, false
}

// decodeBody decodes the object in the body of a create or update: JSON, YAML or protobuf.
func decodeBody(contentType string, body []byte) (map[string]any, error) {
	media, _, _ := mime.ParseMediaType(contentType)
	switch media {
	case "", typeJSON:
		var m map[string]any
		if err := utiljson.Unmarshal(body, &m); err != nil {
			return nil, errors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
		return m, nil
	case "application/yaml":
		var m map[string]any
		j, err := yaml.YAMLToJSON(body)
		if err == nil {
			err = utiljson.Unmarshal(j, &m)
		}
		if err != nil {
			return nil, errors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
		return m, nil
	case typeProto:
		obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, errors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, errors.NewBadRequest(err.Error())
		}
		m["kind"], m["apiVersion"] = gvk.Kind, gvk.GroupVersion().String()
		return m, nil
	}
	return nil, unsupportedMediaType(contentType)
}

func decodeDeleteOptions(contentType string, body []byte) (metav1.DeleteOptions, error) {
	var opts metav1.DeleteOptions
	if len(body) == 0 {
		return opts, nil
	}
	m, err := decodeBody(contentType, body)
	if err != nil {
		return opts, err
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(b, &opts)
	}
	if err != nil {
		return opts, errors.NewBadRequest("the delete options are unrecognized: " + err.Error())
	}
	return opts, nil
}

func readBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, errors.NewBadRequest("cannot read the body: " + err.Error())
	}
	return b, nil
}

func unsupportedMediaType(contentType string) error {
	return &errors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format: %q", contentType),
	}}
}

func notAcceptable() error {
	return &errors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable, Message: "only the following media types are accepted: " + typeJSON + ", " + typeProto,
	}}
}
