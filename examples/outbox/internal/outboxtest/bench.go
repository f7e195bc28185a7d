// Package outboxtest has the tests of package operations/outbox that need a database. They are among the examples
// because the library must not depend on the database drivers. The tests run on SQLite in ../.. and on PostgreSQL in
// ../../e2e.
package outboxtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

// bench is an outbox for one test.
type bench struct {
	*outbox.Outbox
	Database
	db    *sql.DB
	table string
	clock *clock
}

// clock is the time of the machine plus an offset that the test advances.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Database is a database for the tests. Several processes and tests use it concurrently, each with its own table.
type Database struct {
	Dialect outbox.Dialect
	Driver  string // name in database/sql
	DSN     string
}

func newBench(t *testing.T, on Database) *bench {
	t.Helper()
	b := &bench{Database: on, clock: &clock{}}
	b.table = "t_" + strings.ToLower(rand.Text()) // also distinct from other runs of the same test
	var err error
	if b.db, err = sql.Open(b.Driver, b.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.db.Close(); err != nil {
			t.Error(err)
		}
	})
	if b.Outbox, err = outbox.Open(b.db, b.Dialect, outbox.Options{Table: b.table, Now: b.clock.now}); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin starts a transaction. The end of the test rolls it back if it is still open.
func (b *bench) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// put enqueues entries in one transaction and commits it.
func (b *bench) put(t *testing.T, entries ...outbox.Entry) {
	t.Helper()
	tx := b.begin(t)
	for _, e := range entries {
		if err := b.Enqueue(t.Context(), tx, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Notify()
}

func entry(id, key string) outbox.Entry {
	return outbox.Entry{ID: id, Key: key, Payload: json.RawMessage(`{"id":"` + id + `"}`)}
}

// relay returns a relay with short delays, for tests that wait for it.
func (b *bench) relay(deliver outbox.Deliver) *outbox.Relay {
	return &outbox.Relay{
		Outbox: b.Outbox, Deliver: deliver, Poll: 20 * time.Millisecond, InitialBackoff: time.Millisecond,
		MaxBackoff: 10 * time.Millisecond,
	}
}

// start runs r until stop is called or the test ends, and waits for it.
func start(t *testing.T, r *outbox.Relay) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// take waits for a value.
func take[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testlimit.Wait):
		t.Fatalf("nothing happened for %v", testlimit.Wait)
		panic("unreachable")
	}
}

// until polls ok until it returns true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	end := time.After(testlimit.Wait)
	for !ok() {
		select {
		case <-ticker.C:
		case <-end:
			t.Fatalf("not within %v: %s", testlimit.Wait, what)
		}
	}
}

func (b *bench) stats(t *testing.T) outbox.Stats {
	t.Helper()
	s, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
