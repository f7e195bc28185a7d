package access

import (
	"encoding/json"
	"errors"
	"net/http"
)

// Problem is an error for a client: application/problem+json of RFC 9457.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Error returns title and detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// HTTPStatus returns the status.
func (p *Problem) HTTPStatus() int { return p.Status }

// StatusOf returns the status of an error with the method HTTPStatus, such as a [*Problem], or 0.
func StatusOf(err error) int {
	p, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err)
	if !ok {
		return 0
	}
	return p.HTTPStatus()
}

// WriteProblem answers with a Problem.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	WriteJSON(w, status, "application/problem+json", &Problem{
		Status: status, Title: http.StatusText(status), Detail: detail,
	})
}

// WriteJSON answers with a value that can be encoded.
func WriteJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it fails only if the client has disconnected
}
