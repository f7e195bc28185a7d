package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"
)

// States of a row. A pending one may be leased.
const (
	stateDelivered = "delivered"
	stateRejected  = "rejected"
)

const (
	// maxErrorBytes bounds what is kept of an error.
	maxErrorBytes = 4096

	// cleanBatch bounds how many rows one statement deletes.
	cleanBatch = 1000
)

// errLeaseLost is returned for an entry that was leased to another relay, or ended, meanwhile.
var errLeaseLost = errors.New("lease lost")

// lease is an entry that belongs to one relay for a while. What the relay stores about it counts only while the token in the row is
// still the same.
type lease struct {
	Entry
	seq   int64
	token string
}

// claim leases up to limit entries, in their order.
func (o *Outbox) claim(ctx context.Context, limit int, term time.Duration) ([]lease, error) {
	now, token := o.now(), rand.Text()
	rows, err := o.db.QueryContext(ctx, o.sql.claim, o.claimArgs(now, limit, term, token)...)
	if err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	defer rows.Close()
	var out []lease
	for rows.Next() {
		l := lease{token: token}
		var payload string
		var enqueued int64
		if err := rows.Scan(&l.seq, &l.ID, &l.Key, &payload, &l.Attempt, &enqueued); err != nil {
			return nil, fmt.Errorf("cannot claim entries: %w", err)
		}
		l.Payload, l.EnqueuedAt = json.RawMessage(payload), time.UnixMicro(enqueued)
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	slices.SortFunc(out, func(a, b lease) int { return cmp.Compare(a.seq, b.seq) })
	return out, nil
}

// claimArgs are in the order in which the statement of the dialect has its parameters.
func (o *Outbox) claimArgs(now time.Time, limit int, term time.Duration, token string) []any {
	which := []any{micros(now), micros(now), limit}
	what := []any{micros(now.Add(term)), token}
	if o.dialect == PostgreSQL {
		return append(which, what...)
	}
	return append(what, which...)
}

func (o *Outbox) end(ctx context.Context, l lease, state, reason string) error {
	return o.settle(ctx, o.sql.end, state, micros(o.now()), storable(reason), l.seq, l.token)
}

func (o *Outbox) postpone(ctx context.Context, l lease, after time.Duration, reason string) error {
	return o.settle(ctx, o.sql.postpone, micros(o.now().Add(after)), storable(reason), l.seq, l.token)
}

func (o *Outbox) release(ctx context.Context, l lease) error {
	return o.settle(ctx, o.sql.release, l.seq, l.token)
}

func (o *Outbox) settle(ctx context.Context, statement string, args ...any) error {
	result, err := o.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return errLeaseLost
	}
	return nil
}

// clean deletes entries that were delivered up to before, and reports whether there may be more.
func (o *Outbox) clean(ctx context.Context, before time.Time) (bool, error) {
	result, err := o.db.ExecContext(ctx, o.sql.clean, micros(before), cleanBatch)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == cleanBatch, err
}

// storable makes text fit for a text column of PostgreSQL, and not too long.
func storable(text string) string {
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// backoff is the wait after the given attempt, from 1: it doubles from initial up to limit, and is drawn from the upper half of that.
func backoff(initial, limit time.Duration, attempt int) time.Duration {
	wait := float64(initial) * math.Pow(2, float64(min(max(attempt, 1)-1, 62)))
	bound := time.Duration(min(wait, float64(limit)))
	return bound/2 + mathrand.N(bound/2+1)
}
