package call

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrTimeout is matched by the error of a try that took longer than Policy.Timeout. It is not
	// context.DeadlineExceeded: the caller's own deadline has not passed.
	ErrTimeout = errors.New("no answer in time")

	// ErrOutcomeUnknown is matched by the error of a write that may have been executed although it failed.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrBudget is matched when a call gave up because too many calls to this server are being retried.
	ErrBudget = errors.New("retry budget exhausted")

	// ErrTooLarge is matched when the server cannot take a write, or store what it would make of the object, because it
	// is too large. Only another write, of less, can do better.
	ErrTooLarge = errors.New("too large for the API server")

	// ErrSchema is matched when the server does not take an apply because the schema of the kind does not know a field of
	// it, or knows it in another form; the error names it.
	ErrSchema = errors.New("it does not fit the schema of its kind")

	// errProtocol is matched when the answer is not one of a Kubernetes API server: HTML, a cut body, another kind.
	errProtocol = errors.New("not an answer of a Kubernetes API server")

	// ErrNotMade is matched by all that is done with a nil Client, as that of a fairlead runtime is whose New has
	// failed; Run says with what.
	ErrNotMade = errors.New("there is no client: what should have made it has failed")

	// errInvalidRequest is matched when a request cannot be sent as it is.
	errInvalidRequest = errors.New("invalid request")
)

// Failure is one try that failed.
type Failure struct {
	At   time.Time     // when it began
	Took time.Duration // until it had failed
	Code int           // HTTP status, 0 without an answer
	// one word: timeout, refused, reset, no-answer, protocol, cancelled, or the server's own (TooManyRequests, …)
	Reason  string
	Message string
	ID      string // sent as Audit-Id: the audit log of the server knows the request by it
}

// Error is the error of every call that failed after its request was found valid.
//
// It unwraps to the error of the last try first (an *apierrors.StatusError when the server answered), then to sentinels
// of this package, the context's cause or the error of an OnConflict function, where they apply.
type Error struct {
	// Verb and the names are those of the request; Group is empty for the core group; Kind may be the resource.
	Verb                                      Verb
	Group, Kind, Namespace, Name, Subresource string

	// Code, Reason, Message and Causes are the server's, of the last try that it answered with a status.
	Code    int
	Reason  metav1.StatusReason
	Message string
	Causes  []metav1.StatusCause

	// Tries lists all failed tries, oldest first; of very many, the first and the last ones.
	Tries   []Failure
	Elapsed time.Duration

	// outcomeUnknown says that the write may have been executed.
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

// Is makes ErrOutcomeUnknown match an error with that flag.
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

// collapse words the tries that came before the last one, equal neighbours once with their number.
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

// timeoutError is the error of a try that took too long.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string   { return fmt.Sprintf("no answer within %s", e.after) }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
func (e *timeoutError) Is(target error) bool {
	return target == ErrTimeout
}

// protocolError is the error of an answer that no API server gives.
type protocolError struct{ what string }

func (e *protocolError) Error() string        { return errProtocol.Error() + ": " + e.what }
func (e *protocolError) Is(target error) bool { return target == errProtocol }
