package apiserver

import (
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// negotiate returns the first accepted encoding that is available for t (nil: no resource). Tables and YAML are not
// available. If ok is false, the returned encoding is used for the error.
func negotiate(accept string, t *table, list bool) (_ encoding, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return encoding{}, true
	}
	const single, many = "PartialObjectMetadata", "PartialObjectMetadataList"
	var refusal encoding
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		var e encoding
		switch as := params["as"]; as {
		case "":
		case single, many:
			if params["g"] != "meta.k8s.io" || params["v"] != "v1" && params["v"] != "v1beta1" {
				continue
			}
			if list != (as == many) { // later parameters are ignored
				return refusal, false
			}
			e.partial = true
		default:
			continue
		}
		switch media {
		case typeJSON, "application/*", "*/*":
			return e, true
		case typeProto:
			if e.proto = true; t == nil || t.typed || e.partial {
				return e, true
			}
			refusal.proto = true
		}
	}
	return refusal, false
}

func notAcceptable() error {
	return &errors.StatusError{ErrStatus: failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+typeJSON+", "+typeProto)}
}
