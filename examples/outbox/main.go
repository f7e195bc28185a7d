// Command outbox shows how an API service enqueues an operation in its own SQL transaction. It marks an application
// as being deleted and enqueues the deletion in one transaction, rolls back another one, and relays the committed
// entry.
//
//	go run ./outbox                                          # SQLite, in memory
//	go run ./outbox -dsn postgres://user@localhost/database  # PostgreSQL
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/fairlead-io/fairlead/operations/outbox"
)

func main() {
	dsn := flag.String("dsn", "", "URL of a PostgreSQL database; SQLite in memory when empty")
	flag.Parse()
	if err := run(context.Background(), *dsn, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// open connects to PostgreSQL, or to an in-memory SQLite database that lives as long as its connection.
func open(dsn string) (*sql.DB, outbox.Dialect, error) {
	if dsn != "" {
		db, err := sql.Open("pgx", dsn)
		return db, outbox.PostgreSQL, err
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err == nil {
		db.SetMaxOpenConns(1) // each connection has its own in-memory database
	}
	return db, outbox.SQLite, err
}

func run(ctx context.Context, dsn string, out io.Writer) (err error) {
	db, dialect, err := open(dsn)
	if err != nil {
		return fmt.Errorf("cannot open database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	box, err := outbox.Open(db, dialect, outbox.Options{})
	if err != nil {
		return err
	}
	if err := box.EnsureSchema(ctx); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS applications (id TEXT PRIMARY KEY, ready BOOLEAN NOT NULL)`); err != nil {
		return fmt.Errorf("cannot make table: %w", err)
	}

	committed, refused := "app-"+uuid.NewString(), "app-"+uuid.NewString()
	if err := deleteApplication(ctx, db, box, committed, nil); err != nil {
		return err
	}
	say := func(what, id string) { _, _ = fmt.Fprintf(out, "%-12s %s\n", what, name(id)) } // ignores write errors
	say("committed", committed)
	refusal := errors.New("quota exceeded")
	if err := deleteApplication(ctx, db, box, refused, refusal); !errors.Is(err, refusal) {
		return fmt.Errorf("cannot roll back: %w", err)
	}
	say("rolled back", refused)

	// A service runs the relay until it stops. This example stops after the first delivery.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	relay := &outbox.Relay{
		Outbox: box,
		Log:    slog.New(slog.NewTextHandler(out, nil)),
		Deliver: func(_ context.Context, e outbox.Entry) error {
			say("delivered", strings.TrimPrefix(e.Key, "Application/"))
			stop()
			return nil
		},
	}
	return relay.Run(ctx)
}

// deleteApplication is the body of an API handler. It returns refusal, if not nil, after all writes, which rolls them
// back.
func deleteApplication(ctx context.Context, db *sql.DB, box *outbox.Outbox, id string, refusal error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot delete %s: %w", id, err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, `INSERT INTO applications (id, ready) VALUES ($1, FALSE)`, id); err != nil {
		return fmt.Errorf("cannot delete %s: %w", id, err)
	}
	payload, err := json.Marshal(map[string]any{
		"operationType": "Delete", "resourceType": "Application", "resourceID": id,
	})
	if err != nil {
		return fmt.Errorf("cannot delete %s: %w", id, err)
	}
	if err := box.Enqueue(ctx, tx, outbox.Entry{
		ID: uuid.NewString(), Key: "Application/" + id, Payload: payload,
	}); err != nil {
		return err
	}
	if refusal != nil {
		return fmt.Errorf("cannot delete %s: %w", id, refusal)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cannot delete %s: %w", id, err)
	}
	box.Notify()
	return nil
}

// name shortens an id for printing.
func name(id string) string { return id[:min(len(id), 12)] }
