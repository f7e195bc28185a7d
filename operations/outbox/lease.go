package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// What becomes of an entry. The first three are states of its row; released is pending with the attempt not counted.
const (
	statePending   = "pending"
	stateDelivered = "delivered"
	stateRejected  = "rejected"
	stateReleased  = "released"
)

const (
	// maxErrorBytes bounds what is kept of an error.
	maxErrorBytes = 4096

	// cleanBatch bounds how many rows one statement deletes.
	cleanBatch = 1000
)

// lease is an entry that belongs to one relay for a while. What the relay stores about it counts only while the token
// in the row is still the same.
type lease struct {
	Entry
	seq   int64
	token string
}

// claim leases up to limit entries, in their order.
func (o *Outbox) claim(ctx context.Context, limit int, term time.Duration) ([]lease, error) {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if o.dialect == PostgreSQL {
		// The plan to have walks the pending rows in order and stops at the limit. As long as the table was not analyzed
		// PostgreSQL believes that few rows are pending, and would examine and sort them all, each time.
		if _, err := tx.ExecContext(ctx, planInOrder); err != nil {
			return nil, fmt.Errorf("cannot claim entries: %w", err)
		}
	}
	out, err := o.leased(ctx, tx, limit, term)
	if err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	return out, nil
}

// planInOrder holds until the end of the transaction.
const planInOrder = `SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)`

func (o *Outbox) leased(ctx context.Context, tx *sql.Tx, limit int, term time.Duration) ([]lease, error) {
	token := rand.Text()
	rows, err := tx.QueryContext(ctx, o.sql.claim, o.claimArgs(limit, term, token)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells what went wrong
	var out []lease
	for rows.Next() {
		l := lease{token: token}
		var payload string
		var enqueued int64
		if err := rows.Scan(&l.seq, &l.ID, &l.Key, &payload, &l.Attempt, &enqueued); err != nil {
			return nil, err
		}
		l.Payload, l.EnqueuedAt = json.RawMessage(payload), time.UnixMicro(enqueued)
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b lease) int { return cmp.Compare(a.seq, b.seq) })
	return out, nil
}

// claimArgs are in the order in which the statement of the dialect has its parameters.
func (o *Outbox) claimArgs(limit int, term time.Duration, token string) []any {
	now := o.clock()
	which, what := []any{now, now, limit}, []any{now, term.Microseconds(), token}
	if o.dialect == PostgreSQL {
		return append(which, what...)
	}
	return append(what, which...)
}

// outcome is what came of a lease.
type outcome struct {
	lease
	state  string
	after  time.Duration // until the next attempt, of a pending one
	reason string
}

// store writes all outcomes, or none, and returns the leases that were lost: to another relay, or because the entry has
// ended.
func (o *Outbox) store(ctx context.Context, outcomes []outcome) (lost []lease, err error) {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot store outcomes: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	now := o.clock()
	// In the order of rows, as claim goes, so that two relays never wait for each other in a circle.
	slices.SortFunc(outcomes, func(a, b outcome) int { return cmp.Compare(a.seq, b.seq) })
	for _, out := range outcomes {
		var result sql.Result
		switch out.state {
		case statePending:
			result, err = tx.ExecContext(ctx, o.sql.postpone, now, out.after.Microseconds(), storable(out.reason), out.seq,
				out.token)
		case stateReleased:
			result, err = tx.ExecContext(ctx, o.sql.release, out.seq, out.token)
		default:
			result, err = tx.ExecContext(ctx, o.sql.end, out.state, now, storable(out.reason), out.seq, out.token)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot store outcomes: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return nil, fmt.Errorf("cannot store outcomes: %w", err)
		}
		if n == 0 {
			lost = append(lost, out.lease)
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("cannot store outcomes: %w", err)
	}
	return lost, nil
}

// clean deletes entries that were delivered as long ago as age, and reports whether there may be more.
func (o *Outbox) clean(ctx context.Context, age time.Duration) (bool, error) {
	result, err := o.db.ExecContext(ctx, o.sql.clean, o.clock(), age.Microseconds(), cleanBatch)
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

// retryDelay is the wait after the given attempt, from 1: it doubles from initial up to limit, and is drawn from the
// upper half of that.
func retryDelay(initial, limit time.Duration, attempt int) time.Duration {
	return backoff.Policy{Base: initial, Cap: limit, Factor: 2, Equal: true}.Delay(max(attempt, 1)-1, mathrand.Float64)
}
