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

// Outcomes of a delivery. The first three are states of the row. Released means pending without counting the attempt.
const (
	statePending   = "pending"
	stateDelivered = "delivered"
	stateRejected  = "rejected"
	stateReleased  = "released"
)

const (
	// maxErrorBytes bounds the stored text of an error.
	maxErrorBytes = 4096

	// cleanBatch bounds the rows that one statement deletes.
	cleanBatch = 1000
)

// lease is an entry that is leased to one relay. The relay's updates apply only while the row has the same token.
type lease struct {
	Entry
	seq   int64
	token string
}

// claim leases up to limit entries, in order.
func (t *table) claim(ctx context.Context, limit int, term time.Duration) ([]lease, error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // a no-op after a commit
	if t.dialect == PostgreSQL {
		// The fast plan walks the pending rows in order and stops at the limit. Until the table is analyzed, PostgreSQL
		// assumes few pending rows, and would read and sort all of them each time.
		if _, err := tx.ExecContext(ctx, planInOrder); err != nil {
			return nil, fmt.Errorf("cannot claim entries: %w", err)
		}
	}
	out, err := t.leased(ctx, tx, limit, term)
	if err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("cannot claim entries: %w", err)
	}
	return out, nil
}

// planInOrder is in effect until the end of the transaction.
const planInOrder = `SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)`

func (t *table) leased(ctx context.Context, tx *sql.Tx, limit int, term time.Duration) ([]lease, error) {
	token := rand.Text()
	rows, err := tx.QueryContext(ctx, t.sql.claim, t.claimArgs(limit, term, token)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err returns the error
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

// claimArgs returns the arguments in the parameter order of the dialect's statement.
func (t *table) claimArgs(limit int, term time.Duration, token string) []any {
	now := t.clock()
	which, what := []any{now, now, limit}, []any{now, term.Microseconds(), token}
	if t.dialect == PostgreSQL {
		return append(which, what...)
	}
	return append(what, which...)
}

// outcome is the result of a lease.
type outcome struct {
	lease
	state  string
	after  time.Duration // until the next attempt of a pending entry
	reason string
}

// store writes all outcomes or none. It returns the lost leases: another relay has taken the entry, or the entry has
// ended.
func (t *table) store(ctx context.Context, outcomes []outcome) (lost []lease, err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot store outcomes: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // a no-op after a commit
	now := t.clock()
	// In row order, as in claim, to avoid deadlocks between relays.
	slices.SortFunc(outcomes, func(a, b outcome) int { return cmp.Compare(a.seq, b.seq) })
	for _, out := range outcomes {
		var result sql.Result
		switch out.state {
		case statePending:
			result, err = tx.ExecContext(ctx, t.sql.postpone, now, out.after.Microseconds(), storable(out.reason), out.seq,
				out.token)
		case stateReleased:
			result, err = tx.ExecContext(ctx, t.sql.release, out.seq, out.token)
		default:
			result, err = tx.ExecContext(ctx, t.sql.end, out.state, now, storable(out.reason), out.seq, out.token)
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

// clean deletes entries that were delivered at least age ago, and reports whether more may remain.
func (t *table) clean(ctx context.Context, age time.Duration) (bool, error) {
	result, err := t.db.ExecContext(ctx, t.sql.clean, t.clock(), age.Microseconds(), cleanBatch)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == cleanBatch, err
}

// storable makes text valid for a text column of PostgreSQL and truncates it.
func storable(text string) string {
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// retryDelay returns the delay after the given attempt, from 1. It doubles from initial up to limit, and is drawn
// randomly from the upper half.
func retryDelay(initial, limit time.Duration, attempt int) time.Duration {
	return backoff.Policy{Base: initial, Cap: limit, Factor: 2, Equal: true}.Delay(max(attempt, 1)-1, mathrand.Float64)
}
