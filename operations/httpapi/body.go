package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// readBody reads a body that must be one JSON object.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if err == nil { // keep the deadline after an error, since clearing it would look like a disconnect
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		w.Header().Del("Connection") // the body was read completely, so the connection can be reused
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
	if err := json.Unmarshal(raw, &value); err != nil { // also fails on data after the object
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

// readSpec reads the fields of a spec, with the operation id from the headers, and adds all their problems to wrong. It
// returns an error only if the body cannot be read.
func readSpec(w http.ResponseWriter, r *http.Request, wrong *faults) (spec v1alpha1.OperationSpec, err error) {
	raw, err := readBody(w, r)
	if err != nil {
		return spec, err
	}
	misshapen := misshapen("spec", raw, reflect.TypeOf(spec))
	wrong.add(http.StatusBadRequest, "Body cannot be read", misshapen...)
	members, _ := object(raw)
	given := false // zero is invalid, but in the spec it looks like an absent timeout
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member := members[name]
		one, err := json.Marshal(map[string]json.RawMessage{name: member})
		if err == nil {
			_ = json.Unmarshal(one, &spec) // misshapen has reported the errors already
		}
		given = given || strings.EqualFold(name, "timeout") && kindOf(member) != "null"
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		if spec.OperationID != "" && spec.OperationID != key {
			wrong.add(http.StatusUnprocessableEntity, "Two operation ids", operations.FieldError{
				Field: "header Idempotency-Key", Problem: "differs from the field operationID: send one of them, or both alike",
			})
		} else {
			spec.OperationID = key
		}
	}
	var invalid *operations.InvalidError
	if errors.As(operations.Validate(spec), &invalid) {
		wrong.add(http.StatusUnprocessableEntity, invalidTitle, without(invalid.Fields, misshapen)...)
	}
	if given && spec.Timeout.Duration == 0 {
		wrong.add(http.StatusUnprocessableEntity, invalidTitle, without([]operations.FieldError{
			{Field: "spec.timeout", Problem: "must be a duration above zero, such as 30s or 2h"},
		}, misshapen)...)
	}
	return spec, nil
}

// without removes problems of fields that could not be read, and of the fields within them.
func without(all, misshapen []operations.FieldError) []operations.FieldError {
	return slices.DeleteFunc(slices.Clone(all), func(f operations.FieldError) bool {
		return slices.ContainsFunc(misshapen, func(m operations.FieldError) bool {
			rest, within := strings.CutPrefix(f.Field, m.Field)
			return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	})
}
