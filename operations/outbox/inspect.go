package outbox

import (
	"context"
	"fmt"
	"time"
)

// Rejection is a rejected entry with its reason.
type Rejection struct {
	Entry
	Reason     string
	RejectedAt time.Time
}

// Stats counts the entries in the table.
type Stats struct {
	// Pending counts pending entries, including those in delivery.
	Pending int

	// Rejected counts rejected entries.
	Rejected int

	// Oldest is the enqueue time of the oldest pending entry, or the zero time if there is none.
	Oldest time.Time
}

// Stats counts the entries. It scans rows, so it is meant for metrics and health checks, not for each request.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	s, err := o.table.stats(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("cannot count outbox entries: %w", err)
	}
	return s, nil
}

// Rejected returns up to limit rejected entries, the latest first.
func (o *Outbox) Rejected(ctx context.Context, limit int) ([]Rejection, error) {
	out, err := o.table.rejected(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("cannot list rejected outbox entries: %w", err)
	}
	return out, nil
}

// Requeue makes a rejected entry pending again, at its old position among the entries of its key, and wakes the relays
// of this process. It returns [ErrNotFound] if no rejected entry has the ID.
func (o *Outbox) Requeue(ctx context.Context, id string) error {
	if err := o.table.requeue(ctx, id); err != nil {
		return fmt.Errorf("cannot requeue %q: %w", id, err)
	}
	o.Notify()
	return nil
}
