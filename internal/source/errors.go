package source

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors of a Status, for use with errors.Is. Other errors are an *APIError, a *ProtocolError or a wrapped network or
// TLS error.
var (
	// ErrStalled: a request made no progress in time and was cancelled.
	ErrStalled = errors.New("no progress")
	// ErrSilent: a watch receives no events although the server's resource version advances.
	ErrSilent = errors.New("watch is silent")
	// ErrStale: a response is older than the version already seen, for example from a lagging replica.
	ErrStale = errors.New("answer is older than the cached state")
	// ErrImplausible: a list would delete many objects and a second list did not confirm it.
	ErrImplausible = errors.New("list is not confirmed")
	// ErrEnded: the server repeatedly ends a watch immediately.
	ErrEnded = errors.New("watch ends at once")
	// ErrRunning: Run was called more than once.
	ErrRunning = errors.New("source has been run already")
)

// APIError is an error that the server returned, as an HTTP status or as an event of a watch. It implements APIStatus,
// so the functions of k8s.io/apimachinery/pkg/api/errors, such as IsForbidden, accept it.
type APIError struct {
	Code       int
	ErrStatus  metav1.Status
	RetryAfter time.Duration // 0: not given
	InStream   bool          // received as an event of a watch
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

// ProtocolError reports a response that is not a list or watch of the resource: truncated, of another kind, an HTML
// page, a Table, or without a resource version.
type ProtocolError struct {
	What        string
	ContentType string
	Excerpt     string // the beginning of the response, at most 200 bytes
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
