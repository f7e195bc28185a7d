package admission

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Undecided wraps an error of a function that could not decide, such as an error of a request that it made. The failure
// policy then decides. An error that matches the end of the request's context needs no wrapping.
func Undecided(err error) error {
	if err == nil {
		return nil
	}
	return &undecidedError{err}
}

type undecidedError struct{ err error }

func (e *undecidedError) Error() string { return e.err.Error() }
func (e *undecidedError) Unwrap() error { return e.err }

func undecided(ctx context.Context, err error) bool {
	var u *undecidedError
	return errors.As(err, &u) || ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// badRequest is an error of the caller.
type badRequest struct{ error }

// denial returns the status that a client gets for an error.
func denial(err error, kind schema.GroupKind, name string) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status := api.Status()
		status.Status = metav1.StatusFailure
		if status.Code < http.StatusBadRequest {
			status.Code = http.StatusForbidden
		}
		return &status
	}
	fields, others := fieldErrors(err, nil)
	if len(fields) == 0 {
		return denied(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
	}
	status := apierrors.NewInvalid(kind, name, fields).Status()
	if others { // the causes are set; the text contains the other errors
		status.Message = err.Error()
	}
	return &status
}

// fieldErrors collects the field errors and reports whether there are other errors.
func fieldErrors(err error, found field.ErrorList) (_ field.ErrorList, others bool) {
	switch e := err.(type) { // a wrapped field error has its own text, which must not be lost
	case *field.Error:
		return append(found, e), false
	case interface{ Unwrap() []error }:
		return eachField(e.Unwrap(), found)
	case interface{ Errors() []error }:
		return eachField(e.Errors(), found)
	case interface{ Unwrap() error }:
		found, _ = fieldErrors(e.Unwrap(), found)
		return found, true
	}
	return found, true
}

func eachField(all []error, found field.ErrorList) (_ field.ErrorList, others bool) {
	for _, err := range all {
		var more bool
		found, more = fieldErrors(err, found)
		others = others || more
	}
	return found, others
}
