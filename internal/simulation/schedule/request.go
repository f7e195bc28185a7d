package schedule

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// request is what a request to the API server is about.
type request struct {
	verb            string // get, list, watch, create, update, patch, apply, delete, deletecollection
	resource        schema.GroupResource
	version         string
	namespace, name string
	subresource     string
}

// path returns the resource as in a URL, such as apps/v1/deployments/scale.
func (q request) path() string {
	path := schema.GroupVersion{Group: q.resource.Group, Version: q.version}.String() + "/" + q.resource.Resource
	if q.subresource != "" {
		path += "/" + q.subresource
	}
	return path
}

// parse reads verb and object from the URL. ok is false for discovery and other requests without a resource.
func parse(r *http.Request) (q request, ok bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.resource.Group, q.version, parts = parts[1], parts[2], parts[3:]
	default:
		return q, false
	}
	if len(parts) >= 3 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource.Resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.subresource = strings.Join(parts[2:], "/")
	}
	switch r.Method {
	case http.MethodPost:
		q.verb = "create"
	case http.MethodPut:
		q.verb = "update"
	case http.MethodPatch:
		q.verb = "patch"
		if t := r.Header.Get("Content-Type"); strings.HasPrefix(t, string(types.ApplyYAMLPatchType)) ||
			strings.HasPrefix(t, string(types.ApplyCBORPatchType)) {
			q.verb = "apply"
		}
	case http.MethodDelete:
		q.verb = "delete"
		if q.name == "" {
			q.verb = "deletecollection"
		}
	default:
		query := r.URL.Query()
		switch {
		case query.Get("watch") == "true" || query.Get("watch") == "1":
			q.verb = "watch"
		case q.name == "":
			q.verb = "list"
		default:
			q.verb = "get"
		}
	}
	return q, true
}

func (q request) isWrite() bool {
	switch q.verb {
	case "get", "list", "watch":
		return false
	}
	return !q.isReview()
}

// isReview reports a request that creates nothing: an access or token review, or a token.
func (q request) isReview() bool {
	return strings.HasSuffix(q.resource.Resource, "reviews") || q.subresource == "token"
}

// content returns the body, and restores it.
func content(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	b, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(b))
	return b, err
}

// protobufPrefix begins each body in protobuf.
var protobufPrefix = []byte{'k', '8', 's', 0}

// nameIn returns the name of the object, also that in the body of a create, or its generateName and a star.
func (q request) nameIn(body []byte) string {
	if q.name != "" || q.verb != "create" {
		return q.name
	}
	var err error
	meta := &metav1.PartialObjectMetadata{}
	switch rest, ok := bytes.CutPrefix(body, protobufPrefix); {
	case ok:
		var envelope runtime.Unknown
		if err = envelope.Unmarshal(rest); err == nil {
			err = meta.Unmarshal(envelope.Raw) // the metadata is the first field of each kind
		}
	case bytes.HasPrefix(body, []byte("{")):
		err = json.Unmarshal(body, meta)
	default:
		err = yaml.Unmarshal(body, meta)
	}
	if err != nil {
		return ""
	}
	if meta.Name == "" && meta.GenerateName != "" {
		return meta.GenerateName + "*"
	}
	return meta.Name
}
