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

// Bounds of an entry, in bytes.
const (
	maxIDBytes      = 512
	maxKeyBytes     = 1024
	maxPayloadBytes = 1 << 20
)

// Entry is a request in the outbox.
type Entry struct {
	// ID identifies the entry and is the same on each delivery. Use the operation id. Required, at most 512 bytes.
	ID string

	// Key determines the order: entries of one key are delivered one after the other. Use the resource. The empty key
	// is a key like any other. At most 1024 bytes.
	Key string

	// Payload is any JSON value. Required, at most 1 MiB.
	Payload json.RawMessage

	// Attempt counts the deliveries of this entry, from 1. The relay sets it.
	Attempt int

	// EnqueuedAt is the time of Enqueue, which sets it.
	EnqueuedAt time.Time
}

// Options configures an Outbox. The zero value works.
type Options struct {
	// Table is the name of the table: up to 40 lower-case letters, digits and underscores. Default: fairlead_outbox.
	// PostgreSQL looks it up in the search path of the connection.
	Table string

	// Now replaces the database clock in tests. Default: the database clock, so that the clocks of writers and relays
	// do not matter.
	Now func() time.Time
}

// Outbox is a table of entries in a database. It is safe for concurrent use and needs no closing. The caller owns the
// database.
type Outbox struct {
	table  table
	commit signal
}

var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// Open returns the Outbox in db. It does not access the database. It returns [ErrInvalid] for an unknown dialect or an
// invalid table name.
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
		table: table{
			db: db, dialect: dialect, name: opts.Table, now: opts.Now, sql: newStatements(dialect, opts.Table),
		},
		commit: signal{next: make(chan struct{})},
	}, nil
}

// EnsureSchema creates the table and its indexes if they are missing. Several processes may call it concurrently.
func (o *Outbox) EnsureSchema(ctx context.Context) error {
	if err := o.table.create(ctx); err != nil {
		return fmt.Errorf("cannot make outbox table: %w", err)
	}
	return nil
}

// Enqueue writes e as part of tx. The entry is delivered after tx commits, and never if tx is rolled back. Call Notify
// after the commit for immediate delivery.
//
// If the table has an entry with the same ID, key and payload, pending or ended, Enqueue changes nothing and returns
// nil. If the key or payload differs, it returns [ErrConflict]. It returns [ErrInvalid] for an invalid entry. After any
// other error, tx must be rolled back.
//
// On PostgreSQL, transactions that enqueue for the same key wait for each other until they end. This makes the order of
// entries the commit order.
func (o *Outbox) Enqueue(ctx context.Context, tx *sql.Tx, e Entry) error {
	if err := validate(e); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	var payload bytes.Buffer
	if err := json.Compact(&payload, e.Payload); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w: payload: %w", e.ID, ErrInvalid, err)
	}
	if err := o.table.insert(ctx, tx, e, payload.String()); err != nil {
		return fmt.Errorf("cannot enqueue %q: %w", e.ID, err)
	}
	return nil
}

// Notify wakes the relays of this Outbox in this process. Call it after a commit. Without it an entry waits for the
// next poll.
func (o *Outbox) Notify() { o.commit.notify() }

// signal wakes any number of waiters at once.
type signal struct {
	mu   sync.Mutex
	next chan struct{} // closed and replaced by notify
}

func (s *signal) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.next)
	s.next = make(chan struct{})
}

// changed returns a channel that the next notify closes.
func (s *signal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
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
			return fmt.Errorf("%w: %s is no UTF-8 text", ErrInvalid, text.name) // PostgreSQL cannot store it
		}
	}
	if e.ID == "" {
		return fmt.Errorf("%w: id is empty", ErrInvalid)
	}
	return nil
}
