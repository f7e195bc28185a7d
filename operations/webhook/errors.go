package webhook

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Causes that a Result's Err or the error of Compile may match with errors.Is.
var (
	// errTargetRefused: the guard refused the address of the target. errors.As finds a *guard.RefusedError.
	errTargetRefused = guard.ErrRefused
	// ErrInvalid: a field of the definition or of the call is wrong. errors.As finds a *FieldError.
	ErrInvalid = errors.New("invalid field")
	// errNoAnswer: the request got no answer: no connection, reset, timeout, or an answer that is not HTTP.
	errNoAnswer = errors.New("no answer")
	// errCredentials: a secret or token could not be had. errors.As finds a *credentialsError.
	errCredentials = errors.New("no credentials")
	// errCanceled: the caller's context ended before the answer came.
	errCanceled = errors.New("call canceled")
	// ErrFenced: Options.Fence has kept the request from being sent.
	ErrFenced = errors.New("no request may be sent any more")
	// errClosed: the Client is closed.
	errClosed = errors.New("webhook client closed")
)

// FieldError names the field of a definition or call that cannot be used. errors.Is(err, ErrInvalid) holds.
type FieldError struct {
	Field string // as in the Webhook resource, for example spec.request.url
	Err   error  // "cannot parse template: …", "cannot compile expression: …"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// Is makes the error match ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

func fieldError(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// credentialsError says which credentials could not be had. errors.Is(err, errCredentials) holds.
type credentialsError struct {
	Field     string // for example spec.auth.oauth2
	Permanent bool   // trying again with the same secret is pointless: the token endpoint refused it
	Err       error
}

func (e *credentialsError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *credentialsError) Unwrap() error { return e.Err }

// Is makes the error match errCredentials.
func (e *credentialsError) Is(target error) bool { return target == errCredentials }
