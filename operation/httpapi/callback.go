package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/operation"
)

// CallbackSink takes the outcome that a receiver reports. Outcome is SUCCEEDED or FAILED.
type CallbackSink interface {
	// Take records the outcome before it returns. Errors: [operation.ErrUnknownCallback] for a token that stands for nothing,
	// [operation.ErrCallbackUsed] for one whose outcome is known already.
	Take(ctx context.Context, token string, succeeded bool, message string) error
}

func (h *handler) callback(w http.ResponseWriter, r *http.Request) error {
	unknown := &Problem{Status: http.StatusNotFound, Title: "Unknown callback", Detail: "use the URL exactly as it was sent"}
	if h.Callbacks == nil {
		return unknown
	}
	var body struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	}
	raw, err := readBody(w, r)
	if err != nil {
		return err
	}
	var wrong faults
	_ = json.Unmarshal(raw, &body) // as far as it can be; other members are the receiver's own
	for _, f := range misshapen("callback", raw, reflect.TypeOf(body)) {
		if f.Field == "callback.status" || f.Field == "callback.error" {
			wrong.add(http.StatusBadRequest, "Body cannot be read", f)
		}
	}
	status := strings.ToUpper(body.Status)
	if status != "SUCCEEDED" && status != "FAILED" && !slices.ContainsFunc(wrong.fields, func(f operation.FieldError) bool { return f.Field == "callback.status" }) {
		wrong.add(http.StatusBadRequest, "Unknown status", operation.FieldError{
			Field: "callback.status", Problem: "must be SUCCEEDED, or FAILED with an error: {\"status\": \"FAILED\", \"error\": \"…\"}",
		})
	}
	if err := wrong.problem(); err != nil {
		return err
	}
	// As everywhere, a success with an error text is a failure.
	err = h.Callbacks.Take(r.Context(), r.PathValue("token"), status == "SUCCEEDED" && body.Error == "", body.Error)
	switch {
	case errors.Is(err, operation.ErrUnknownCallback):
		return unknown
	case errors.Is(err, operation.ErrCallbackUsed):
		return &Problem{Status: http.StatusConflict, Title: "Used already", Detail: "the outcome of this call is known already"}
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
