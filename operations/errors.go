package operations

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

var (
	// ErrInProgress matches when another operation of the resource has not ended yet; errors.As finds the
	// [*InProgressError] that names it.
	ErrInProgress = errors.New("another operation is in progress")

	// ErrIDReused matches when the id of the request belongs to another request of the same resource.
	ErrIDReused = errors.New("the operation id is in use by another request")

	// ErrNotFound matches when the resource has no operation.
	ErrNotFound = errors.New("operation not found")

	// ErrInvalid matches when a request cannot be accepted; errors.As finds the [*InvalidError] with every problem.
	ErrInvalid = errors.New("invalid request")

	// ErrEnded matches when an operation has ended, so that it can no longer be cancelled.
	ErrEnded = errors.New("the operation has ended")

	// ErrSucceeded matches when an operation has succeeded, so that Retry does not apply.
	ErrSucceeded = errors.New("the operation has succeeded")

	// ErrFollowed matches when another operation of the resource was scheduled meanwhile.
	ErrFollowed = errors.New("a later operation exists")

	// ErrUnknownCallback matches when a callback token identifies no call.
	ErrUnknownCallback = errors.New("unknown callback token")

	// ErrCallbackUsed matches when the outcome that a callback reports is known already or no longer needed.
	ErrCallbackUsed = errors.New("the outcome of this call is already recorded")
)

// InProgressError names the operation that blocks a request.
type InProgressError struct {
	// Running is the operation that has not ended, or that has ended and is being deleted. The caller owns it.
	Running *v1alpha1.Operation
}

// Error names the resource and the running operation.
func (e *InProgressError) Error() string {
	s, state := e.Running.Spec, "in progress"
	if e.Running.Terminal() {
		state = "being deleted"
	}
	return fmt.Sprintf("operation %s (%s) of %s/%s is %s", e.Running.EffectiveID(), s.OperationType, s.ResourceType,
		s.ResourceID, state)
}

// Is matches ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// FieldError is one problem of a request.
type FieldError struct {
	// Field is the path of the field under its JSON name, such as spec.webhookIDs[1].
	Field string `json:"field"`
	// Problem says how to correct the field.
	Problem string `json:"problem"`
}

// InvalidError holds all problems of a request.
type InvalidError struct{ Fields []FieldError }

// Error lists every field with its problem.
func (e *InvalidError) Error() string {
	var all []string
	for _, f := range e.Fields {
		all = append(all, f.Field+" "+f.Problem)
	}
	return ErrInvalid.Error() + ": " + strings.Join(all, "; ")
}

// Is matches ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
