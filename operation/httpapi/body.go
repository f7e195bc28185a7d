package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
)

// readBody reads a body that is one JSON object.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if err == nil { // or else the deadline would be taken for the caller's going away
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Problem{Status: http.StatusRequestTimeout, Title: "Body too slow", Detail: "send the whole body at once"}
	case err != nil:
		return nil, unreadable(err)
	case len(bytes.TrimSpace(raw)) == 0:
		return nil, &Problem{Status: http.StatusBadRequest, Title: "Empty body", Detail: "send the fields as a JSON object"}
	}
	var value json.RawMessage
	if err := json.Unmarshal(raw, &value); err != nil { // also if something follows the object
		return nil, unreadable(err)
	}
	if value[0] != '{' {
		return nil, unreadable(errors.New("send one JSON object"))
	}
	return raw, nil
}

func unreadable(err error) *Problem {
	return &Problem{Status: http.StatusBadRequest, Title: "Body cannot be read", Detail: err.Error()}
}

// readSpec reads the fields of a spec, and names each of them that cannot be read.
func readSpec(w http.ResponseWriter, r *http.Request) (spec v1alpha1.OperationSpec, err error) {
	raw, err := readBody(w, r)
	if err != nil {
		return spec, err
	}
	if err := strict(raw, &spec); err != nil {
		return spec, wrongFields(raw, err)
	}
	var given struct{ Timeout *metav1.Duration }
	if err := json.Unmarshal(raw, &given); err == nil && given.Timeout != nil && given.Timeout.Duration == 0 {
		// The spec cannot tell it from none, which would stand for the default.
		return spec, &operation.InvalidError{Fields: []operation.FieldError{{Field: "spec.timeout", Problem: "must be a duration above zero, such as 30s or 2h"}}}
	}
	return spec, nil
}

func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// wrongFields looks at each member alone, since a decoder stops at the first one and does not name those that decode themselves.
func wrongFields(raw []byte, cause error) error {
	p := unreadable(cause)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return p
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var spec v1alpha1.OperationSpec
		one, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err == nil {
			err = strict(one, &spec)
		}
		if err != nil {
			f := wrongField(name, err)
			p.Fields, all = append(p.Fields, f), append(all, f.Field+" "+f.Problem)
		}
	}
	if len(all) > 0 {
		p.Detail = strings.Join(all, "; ")
	}
	return p
}

func wrongField(name string, err error) operation.FieldError {
	f := operation.FieldError{Field: "spec." + name, Problem: strings.TrimPrefix(err.Error(), "json: ")}
	var kind *json.UnmarshalTypeError
	unknown, isUnknown := strings.CutPrefix(f.Problem, "unknown field ")
	switch {
	case isUnknown && unknown == strconv.Quote(name):
		f.Problem = "is not a field of a request"
	case isUnknown:
		f.Problem = "must not have a field " + unknown
	case name == "timeout" || name == "ttlAfterFinished":
		f.Problem = "must be a duration in quotes, such as \"30s\" or \"2h\""
	case errors.As(err, &kind):
		if path := strings.ReplaceAll(kind.Field, "ResourceReference.", ""); strings.HasPrefix(path, name+".") {
			f.Field = "spec." + path
		}
		f.Problem = fmt.Sprintf("must not be of type %s", kind.Value)
	}
	return f
}
