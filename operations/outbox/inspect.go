package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Rejection is an entry that was rejected, and why.
type Rejection struct {
	Entry
	Reason     string
	RejectedAt time.Time
}

// Stats counts what is in the table.
type Stats struct {
	// Pending entries, those in delivery included.
	Pending int

	// Rejected entries.
	Rejected int

	// Oldest is when the oldest pending entry was enqueued; the zero time when there is none.
	Oldest time.Time
}

// Stats reads how much there is to do. It counts rows, so it is meant for a metric or a health check, not for each
// request.
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
	defer rows.Close() //nolint:errcheck // rows.Err tells what went wrong
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

// Requeue makes the rejected entry with this ID pending again, at its old place among the entries of its key, and wakes
// the relays of this process. It returns [ErrNotFound] when no rejected entry has it.
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
