package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// table reads and writes the rows of an outbox. Each method is one transaction, or part of that of the caller. The
// state and the locks are those of the database.
type table struct {
	db      *sql.DB
	dialect Dialect
	name    string
	now     func() time.Time // nil: the clock of the database
	sql     statements
}

// clock returns the time argument of statements: nil for the database clock.
func (t *table) clock() any {
	if t.now == nil {
		return nil
	}
	return t.now().UnixMicro()
}

// time returns the present time of this process, or of tests.
func (t *table) time() time.Time {
	if t.now == nil {
		return time.Now()
	}
	return t.now()
}

// lock holds a lock for name, scoped to this table, until tx ends. It does nothing on SQLite, which has only one writer
// at a time.
func (t *table) lock(ctx context.Context, tx *sql.Tx, name string) error {
	if t.dialect != PostgreSQL {
		return nil
	}
	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "fairlead/"+t.name+"/"+name)
	return err
}

// create creates the table and its indexes if they are missing.
func (t *table) create(ctx context.Context) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // a no-op after a commit
	if err := t.lock(ctx, tx, "schema"); err != nil {
		return err
	}
	for _, statement := range schema(t.dialect, t.name) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// insert adds a pending entry. It returns ErrConflict if the table has another entry with the same ID.
func (t *table) insert(ctx context.Context, tx *sql.Tx, e Entry, payload string) error {
	if err := t.lock(ctx, tx, "key/"+e.Key); err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, t.sql.insert, e.ID, e.Key, payload, t.clock())
	if err != nil {
		return err
	}
	inserted, err := result.RowsAffected()
	if err != nil || inserted == 1 {
		return err
	}
	var key, existing string
	if err := tx.QueryRowContext(ctx, t.sql.byID, e.ID).Scan(&key, &existing); err != nil {
		return err
	}
	if key != e.Key || existing != payload {
		return ErrConflict
	}
	return nil
}

// stats counts the entries.
func (t *table) stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest int64
	if err := t.db.QueryRowContext(ctx, t.sql.stats).Scan(&s.Pending, &s.Rejected, &oldest); err != nil {
		return Stats{}, err
	}
	if oldest > 0 {
		s.Oldest = time.UnixMicro(oldest)
	}
	return s, nil
}

// rejected returns up to limit rejected entries, the latest first.
func (t *table) rejected(ctx context.Context, limit int) ([]Rejection, error) {
	rows, err := t.db.QueryContext(ctx, t.sql.rejected, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err returns the error
	var out []Rejection
	for rows.Next() {
		var r Rejection
		var payload string
		var enqueued, rejected int64
		if err := rows.Scan(&r.ID, &r.Key, &payload, &r.Attempt, &enqueued, &rejected, &r.Reason); err != nil {
			return nil, err
		}
		r.Payload, r.EnqueuedAt, r.RejectedAt = json.RawMessage(payload), time.UnixMicro(enqueued), time.UnixMicro(rejected)
		out = append(out, r)
	}
	return out, rows.Err()
}

// requeue makes a rejected entry pending again. It returns ErrNotFound if no rejected entry has the ID.
func (t *table) requeue(ctx context.Context, id string) error {
	result, err := t.db.ExecContext(ctx, t.sql.requeue, id)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return err
}
