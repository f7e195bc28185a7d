package webhook

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Causes that match the Err of a Result or the error of Compile.
var (
	// errTargetRefused means that the guard refused the address of the target. errors.As finds a *guard.RefusedError.
	errTargetRefused = guard.ErrRefused
	// ErrInvalid means that a field of the definition or of the call is invalid. errors.As finds a *FieldError.
	ErrInvalid = errors.New("invalid field")
	// errNoAnswer means that the request got no answer: no connection, a reset, a timeout, or an answer that is not
	// HTTP.
	errNoAnswer = errors.New("no answer")
	// errCredentials means that a secret or token was not available. errors.As finds a *credentialsError.
	errCredentials = errors.New("no credentials")
	// errCanceled means that the caller's context ended before the answer came.
	errCanceled = errors.New("call canceled")
	// ErrFenced means that Options.Fence prevented the request.
	ErrFenced = errors.New("requests are no longer permitted")
	// errClosed means that the Client is closed.
	errClosed = errors.New("webhook client closed")
)

// FieldError names an invalid field of a definition or call. It matches ErrInvalid.
type FieldError struct {
	Field string // as in the Webhook resource, for example spec.request.url
	Err   error  // "cannot parse template: …", "cannot compile expression: …"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// Is matches ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func fieldError(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// credentialsError names the credentials that were not available. It matches errCredentials.
type credentialsError struct {
	Field     string // for example spec.auth.oauth2
	Permanent bool   // the token endpoint refused the secret, so another try with it is pointless
	Err       error
}

func (e *credentialsError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *credentialsError) Unwrap() error { return e.Err }

// Is matches errCredentials.
func (e *credentialsError) Is(target error) bool { return target == errCredentials }
