package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of an entry, in bytes.
const (
	maxIDBytes      = 512
	maxKeyBytes     = 1024
	maxPayloadBytes = 1 << 20
)

// Entry is a request on its way.
type Entry struct {
	// ID tells the entry from all others, and is the same on each delivery. Use the operation id. Required, 512 bytes at most.
	ID string

	// Key orders: entries of one key are delivered one after the other. Use the resource. Entries with an empty key are
	// ordered among themselves like those of any other key. 1024 bytes at most.
	Key string

	// Payload is any JSON value. Required, 1 MiB at most.
	Payload json.RawMessage

	// Attempt counts the deliveries of this entry, from 1. Set by the relay.
	Attempt int

	// EnqueuedAt is when Enqueue was called. Set by Enqueue.
	EnqueuedAt time.Time
}

// Options of an Outbox. The zero value works.
type Options struct {
	// Table is the name of the table, up to 40 lower-case letters, digits and underscores. Default: fairlead_outbox.
	// PostgreSQL looks it up in the search path of the connection.
	Table string

	// Now replaces the clock of the database, by which entries are due and leases end, in tests. Default: that of the
	// database, so that neither the clocks of those who enqueue nor those of the relays matter.
	Now func() time.Time
}

// Outbox is a table of entries in a database. It is safe for concurrent use, and holds nothing that needs closing; the
// database stays the caller's.
type Outbox struct {
	db      *sql.DB
	dialect Dialect
	table   string
	now     func() time.Time
	sql     statements

	mu     sync.Mutex
	change chan struct{} // closed and replaced by Notify
}

var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// Open returns the Outbox in db. It does not touch the database. It returns [ErrInvalid] for an unknown dialect and for
// a table whose name cannot be used.
func Open(db *sql.DB, dialect Dialect, opts Options) (*Outbox, error) {
	if opts.Table == "" {
		opts.Table = "fairlead_outbox"
	}
	if !tableName.MatchString(opts.Table) {
		return nil, fmt.Errorf("cannot open outbox: %w: table name %q", ErrInvalid, opts.Table)
	}
	if dialect != PostgreSQL && dialect != SQLite {
		return nil, fmt.Errorf("cannot open outbox: %w: dialect %q", ErrInvalid, dialect)
	}
	return &Outbox{
		db:      db,
		dialect: dialect,
		table:   opts.Table,
		now:     opts.Now,
		sql:     newStatements(dialect, opts.Table),
		change:  make(chan struct{}),
	}, nil
}

// clock is the argument of statements that tells them what time it is: null for the clock of the database.
func (o *Outbox) clock() any {
	if o.now == nil {
		return nil
	}
	return micros(o.now())
}

// EnsureSchema makes the table and its indexes where they are missing. Several processes may call it at once.
func (o *Outbox) EnsureSchema(ctx context.Context) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot make outbox table: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := o.lock(ctx, tx, "schema"); err != nil {
		return fmt.Errorf("cannot make outbox table: %w", err)
	}
	for _, statement := range schema(o.dialect, o.table) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("cannot make outbox table: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cannot make outbox table: %w", err)
	}
	return nil
}

// Enqueue writes e as part of tx. It is delivered after tx was committed, and not at all when tx is rolled back. Call
// Notify after the commit to have it delivered at once.
//
// An ID that is in the table already, pending or ended, with the same key and payload is no error and changes nothing;
// with others it is [ErrConflict]. [ErrInvalid] is returned for an entry out of its limits. After another error tx can
// only be rolled back.
//
// On PostgreSQL transactions that enqueue for the same key wait for each other, from here to their end; that is what
// makes the order of entries the order of commits.
func (o *Outbox) Enqueue(ctx context.Context, tx *sql.Tx, e Entry) error {
	if err := validate(e); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	var payload bytes.Buffer
	if err := json.Compact(&payload, e.Payload); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w: payload: %w", e.ID, ErrInvalid, err)
	}
	if err := o.lock(ctx, tx, "key/"+e.Key); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	result, err := tx.ExecContext(ctx, o.sql.insert, e.ID, e.Key, payload.String(), o.clock())
	if err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	inserted, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	if inserted == 1 {
		return nil
	}
	var key, existing string
	if err := tx.QueryRowContext(ctx, o.sql.byID, e.ID).Scan(&key, &existing); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	if key != e.Key || existing != payload.String() {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, ErrConflict)
	}
	return nil
}

// Notify wakes the relays of this Outbox in this process. Call it after a commit. Without it an entry waits for the
// next poll.
func (o *Outbox) Notify() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.change)
	o.change = make(chan struct{})
}

// changed is closed by the next Notify.
func (o *Outbox) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.change
}

func validate(e Entry) error {
	for _, text := range []struct {
		name, value string
		limit       int
	}{{"id", e.ID, maxIDBytes}, {"key", e.Key, maxKeyBytes}, {"payload", string(e.Payload), maxPayloadBytes}} {
		if len(text.value) > text.limit {
			return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrInvalid, text.name, len(text.value), text.limit)
		}
		if !utf8.ValidString(text.value) || strings.ContainsRune(text.value, 0) {
			return fmt.Errorf("%w: %s is no UTF-8 text", ErrInvalid, text.name) // PostgreSQL could not store it
		}
	}
	if e.ID == "" {
		return fmt.Errorf("%w: id is empty", ErrInvalid)
	}
	return nil
}

func micros(t time.Time) int64 { return t.UnixMicro() }
