package outbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid is returned for an entry or a setting that cannot be used.
	ErrInvalid = errors.New("invalid")

	// ErrConflict is returned by Enqueue for an ID that is taken by an entry with another key or payload.
	ErrConflict = errors.New("id is taken by another entry")

	// ErrNotFound is returned by Requeue for an ID that no rejected entry has.
	ErrNotFound = errors.New("no such rejected entry")
)

// rejection marks an error as final.
type rejection struct{ cause error }

func (r *rejection) Error() string { return "rejected: " + r.cause.Error() }
func (r *rejection) Unwrap() error { return r.cause }

// Reject makes a Deliver function say that the entry can never be delivered, because of cause: it is kept as rejected
// and not tried again, and the next entry of its key takes its turn. Reject of nil is nil.
func Reject(cause error) error {
	if cause == nil {
		return nil
	}
	return &rejection{cause: cause}
}

// postponement carries when to try again.
type postponement struct {
	after time.Duration
	cause error
}

func (p *postponement) Error() string { return fmt.Sprintf("retry after %v: %v", p.after, p.cause) }
func (p *postponement) Unwrap() error { return p.cause }

// RetryAfter makes a Deliver function say when the entry should be tried again, instead of the usual back-off: after
// the given time, because of cause. RetryAfter of a nil cause is nil, which means delivered.
func RetryAfter(after time.Duration, cause error) error {
	if cause == nil {
		return nil
	}
	return &postponement{after: max(after, 0), cause: cause}
}
