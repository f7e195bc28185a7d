package outbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid matches when an entry or a setting is invalid.
	ErrInvalid = errors.New("invalid")

	// ErrConflict matches when Enqueue gets an ID of an entry with another key or payload.
	ErrConflict = errors.New("id is taken by another entry")

	// ErrNotFound matches when Requeue gets an ID without a rejected entry.
	ErrNotFound = errors.New("no such rejected entry")
)

// rejection marks an error as final.
type rejection struct{ cause error }

func (r *rejection) Error() string { return "rejected: " + r.cause.Error() }
func (r *rejection) Unwrap() error { return r.cause }

// Reject returns an error with which Deliver rejects an entry permanently. The entry is kept as rejected and not
// retried, and the next entry of its key is delivered. Reject returns nil for a nil cause.
func Reject(cause error) error {
	if cause == nil {
		return nil
	}
	return &rejection{cause: cause}
}

// postponement carries the delay of the next attempt.
type postponement struct {
	after time.Duration
	cause error
}

func (p *postponement) Error() string { return fmt.Sprintf("retry after %v: %v", p.after, p.cause) }
func (p *postponement) Unwrap() error { return p.cause }

// RetryAfter returns an error with which Deliver sets the delay of the next attempt, instead of the usual backoff. It
// returns nil, which means delivered, for a nil cause.
func RetryAfter(after time.Duration, cause error) error {
	if cause == nil {
		return nil
	}
	return &postponement{after: max(after, 0), cause: cause}
}
