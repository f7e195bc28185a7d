package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
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
	if err := json.Unmarshal(raw, &body); err != nil {
		return unreadable(err)
	}
	status := strings.ToUpper(body.Status)
	if status != "SUCCEEDED" && status != "FAILED" {
		return &Problem{Status: http.StatusBadRequest, Title: "Unknown status", Detail: "send {\"status\": \"SUCCEEDED\"} or {\"status\": \"FAILED\", \"error\": \"…\"}"}
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
