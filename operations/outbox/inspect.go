package outbox

import (
	"context"
	"encoding/json"
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
	var s Stats
	var oldest int64
	if err := o.db.QueryRowContext(ctx, o.sql.stats).Scan(&s.Pending, &s.Rejected, &oldest); err != nil {
		return Stats{}, fmt.Errorf("cannot count outbox entries: %w", err)
	}
	if oldest > 0 {
		s.Oldest = time.UnixMicro(oldest)
	}
	return s, nil
}

// Rejected returns up to limit rejected entries, the latest first.
func (o *Outbox) Rejected(ctx context.Context, limit int) ([]Rejection, error) {
	rows, err := o.db.QueryContext(ctx, o.sql.rejected, limit)
	if err != nil {
		return nil, fmt.Errorf("cannot list rejected outbox entries: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err returns the error
	var out []Rejection
	for rows.Next() {
		var r Rejection
		var payload string
		var enqueued, rejected int64
		if err := rows.Scan(&r.ID, &r.Key, &payload, &r.Attempt, &enqueued, &rejected, &r.Reason); err != nil {
			return nil, fmt.Errorf("cannot list rejected outbox entries: %w", err)
		}
		r.Payload, r.EnqueuedAt, r.RejectedAt = json.RawMessage(payload), time.UnixMicro(enqueued), time.UnixMicro(rejected)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot list rejected outbox entries: %w", err)
	}
	return out, nil
}

// Requeue makes a rejected entry pending again, at its old position among the entries of its key, and wakes the relays
// of this process. It returns [ErrNotFound] if no rejected entry has the ID.
func (o *Outbox) Requeue(ctx context.Context, id string) error {
	result, err := o.db.ExecContext(ctx, o.sql.requeue, id)
	if err != nil {
		return fmt.Errorf("cannot requeue %q: %w", id, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("cannot requeue %q: %w", id, err)
	}
	if n == 0 {
		return fmt.Errorf("cannot requeue %q: %w", id, ErrNotFound)
	}
	o.Notify()
	return nil
}
