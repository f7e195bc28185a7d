package call

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrTimeout is matched by the error of a try that took longer than Policy.Timeout. It does not match
	// context.DeadlineExceeded, because the caller's own deadline has not passed.
	ErrTimeout = errors.New("no answer in time")

	// ErrOutcomeUnknown is matched by the error of a write that may have been executed although the call failed.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrBudget is matched when a call gives up because too many calls to this server are being retried.
	ErrBudget = errors.New("retry budget exhausted")

	// ErrTooLarge is matched when a write, or the resulting object, is too large for the server. Only a smaller write can
	// succeed.
	ErrTooLarge = errors.New("too large for the API server")

	// ErrSchema is matched when the server refuses an apply because a field is missing in the schema of the kind or has
	// another type there. The error names the field.
	ErrSchema = errors.New("it does not fit the schema of its kind")

	// errProtocol is matched when the answer is not from a Kubernetes API server: HTML, a truncated body, or another
	// kind.
	errProtocol = errors.New("not an answer of a Kubernetes API server")

	// ErrNotMade is matched by all calls with a nil Client. The client of a fairlead runtime whose New has failed is nil;
	// Run returns the cause.
	ErrNotMade = errors.New("there is no client, because its construction failed")

	// errInvalidRequest is matched when a request is malformed and cannot be sent.
	errInvalidRequest = errors.New("invalid request")
)

// Failure describes one failed try.
type Failure struct {
	At   time.Time     // start of the try
	Took time.Duration // time until the failure
	Code int           // HTTP status; 0 without an answer
	// timeout, refused, reset, no-answer, protocol, tls, cancelled, or the server's reason (TooManyRequests, …)
	Reason  string
	Message string
	ID      string // Audit-Id of the request, which the server's audit log shows
}

// Error is the error of every failed call with a valid request.
//
// It unwraps to the error of the last try first (an *apierrors.StatusError if the server answered). It also unwraps to
// errors of this package, the context's cause, or the error of an OnConflict function, if they apply.
type Error struct {
	// Verb and the names are those of the request. Group is empty for the core group. Kind may be the resource.
	Verb                                      Verb
	Group, Kind, Namespace, Name, Subresource string

	// Code, Reason, Message and Causes are from the last try that the server answered with a status.
	Code    int
	Reason  metav1.StatusReason
	Message string
	Causes  []metav1.StatusCause

	// Tries lists all failed tries, oldest first. If there are very many, it lists the first and the last ones.
	Tries   []Failure
	Elapsed time.Duration

	// outcomeUnknown states that the write may have been executed.
	outcomeUnknown bool

	errs []error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot %s %s", e.operation(), e.Kind)
	if at := e.object(); at != "" {
		b.WriteString(" " + at)
	}
	b.WriteString(": ")
	for i, err := range e.errs {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	if n := len(e.Tries); n > 1 {
		fmt.Fprintf(&b, " (after %d tries in %s:", n, e.Elapsed.Round(time.Millisecond))
		for i, words := range collapse(e.Tries[:n-1]) {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(" " + words)
		}
		b.WriteString(")")
	}
	return b.String()
}

func (e *Error) Unwrap() []error { return e.errs }

// Is reports whether target is ErrOutcomeUnknown and the outcome is unknown.
func (e *Error) Is(target error) bool { return target == ErrOutcomeUnknown && e.outcomeUnknown }

func (e *Error) operation() string {
	if e.Subresource == "" {
		return string(e.Verb)
	}
	return string(e.Verb) + " " + e.Subresource + " of"
}

func (e *Error) object() string {
	switch {
	case e.Namespace == "":
		return e.Name
	case e.Name == "":
		return "in " + e.Namespace
	}
	return e.Namespace + "/" + e.Name
}

// collapse describes tries and combines equal neighbours with their count.
func collapse(tries []Failure) []string {
	var out []string
	for i := 0; i < len(tries); {
		words := tries[i].words()
		n := 1
		for i+n < len(tries) && tries[i+n].words() == words {
			n++
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%d× %s", n, words))
		} else {
			out = append(out, words)
		}
		i += n
	}
	return out
}

func (f Failure) words() string {
	if f.Code == 0 {
		return f.Reason
	}
	return fmt.Sprintf("%d %s", f.Code, f.Reason)
}

// timeoutError is the error of a try that exceeded its timeout.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string   { return fmt.Sprintf("no answer within %s", e.after) }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
func (e *timeoutError) Is(target error) bool {
	return target == ErrTimeout
}

// protocolError is the error for an answer that no API server sends.
type protocolError struct{ what string }

func (e *protocolError) Error() string        { return errProtocol.Error() + ": " + e.what }
func (e *protocolError) Is(target error) bool { return target == errProtocol }
