package source

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors that a Status carries, to be told apart with errors.Is and errors.As. Besides them and the types below, an
// error is the one of the network or of TLS, wrapped.
var (
	// ErrStalled: a request brought neither an answer nor progress in time, and was given up.
	ErrStalled = errors.New("no progress")
	// ErrSilent: a watch brings nothing although the resource version of the server has moved.
	ErrSilent = errors.New("watch is silent")
	// ErrStale: an answer is older than what is known already, as that of a replica that lags behind.
	ErrStale = errors.New("answer is older than what is known")
	// ErrImplausible: a list would delete more than is believed without a second, equal list.
	ErrImplausible = errors.New("list is not confirmed")
	// ErrEnded: the server ends a watch at once, again and again.
	ErrEnded = errors.New("watch ends at once")
	// ErrRunning: Run was called twice.
	ErrRunning = errors.New("source has been run already")
)

// APIError is a refusal of the server, as HTTP status or as an event of a watch. It is an APIStatus, so the functions
// of k8s.io/apimachinery/pkg/api/errors (IsForbidden and so on) work on it.
type APIError struct {
	Code       int
	ErrStatus  metav1.Status
	RetryAfter time.Duration // 0: the server did not say
	InStream   bool          // came as an event of a watch
}

func (e *APIError) Error() string {
	msg := e.ErrStatus.Message
	if msg == "" {
		msg = http.StatusText(e.Code)
	}
	if e.ErrStatus.Reason == "" {
		return fmt.Sprintf("server answered %d: %s", e.Code, msg)
	}
	return fmt.Sprintf("server answered %d %s: %s", e.Code, e.ErrStatus.Reason, msg)
}

// Status implements the APIStatus interface of apimachinery.
func (e *APIError) Status() metav1.Status { return e.ErrStatus }

// ProtocolError is an answer that is no list or watch of this resource: cut, of another kind, a page of HTML, a Table,
// or without resource version.
type ProtocolError struct {
	What        string
	ContentType string
	Excerpt     string // the beginning of what came instead, at most 200 bytes
	Err         error
}

func (e *ProtocolError) Error() string {
	s := "cannot understand answer: " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	switch {
	case e.Excerpt != "" && e.ContentType != "":
		s += fmt.Sprintf(" (content type %q, begins with %q)", e.ContentType, e.Excerpt)
	case e.Excerpt != "":
		s += fmt.Sprintf(" (begins with %q)", e.Excerpt)
	}
	return s
}

func (e *ProtocolError) Unwrap() error { return e.Err }

var (
	errNoName      = errors.New("cannot read object: it has no name")
	errNoObject    = errors.New("cannot read object: it is none, but another value")
	errCutMessage  = errors.New("message is cut")
	errNoEnvelope  = errors.New("protobuf envelope is missing")
	errEventType   = errors.New("unknown type of event")
	errNoEndOfList = errors.New("initial events never ended")
)

func excerpt(b []byte) string {
	if len(b) > 200 {
		b = b[:200]
	}
	return string(b)
}
