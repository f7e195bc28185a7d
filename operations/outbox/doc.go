// Package outbox schedules requests with the commit of a caller's own SQL transaction (transactional outbox). The
// caller writes the request to a table of its database, in the transaction of the change that it belongs to. A relay
// delivers the request after the commit. Therefore a rolled back request never runs and a committed one is never lost.
//
//	box, err := outbox.Open(db, outbox.PostgreSQL, outbox.Options{})
//	err = box.EnsureSchema(ctx) // or put outbox.Schema(…) into your migrations
//
//	// In the API service, inside its transaction:
//	_, err = tx.ExecContext(ctx, `UPDATE applications SET ready = false WHERE id = $1`, id)
//	err = box.Enqueue(ctx, tx, outbox.Entry{ID: operationID, Key: "Application/" + id, Payload: request})
//	err = tx.Commit()
//	box.Notify() // optional: no need to wait for the next poll
//
//	// Once per process, in any number of processes:
//	relay := &outbox.Relay{Outbox: box, Deliver: func(ctx context.Context, e outbox.Entry) error {
//		return schedule(ctx, e.ID, e.Payload)
//	}}
//	err = relay.Run(ctx)
//
// The package uses database/sql and imports no driver. It requires at least PostgreSQL 12 or SQLite 3.35. SQLite
// connections need a busy_timeout, because a relay writes too.
//
// Guarantees:
//
//   - An entry is delivered at least once after its transaction was committed, and never if it was rolled back.
//   - Each delivery of an entry carries the same ID, so that the receiver recognizes repetitions.
//   - Entries with the same Key are delivered one at a time, in commit order. The next one starts when the previous one
//     was delivered or rejected. Entries with different keys do not wait for each other.
//   - An Operation detects a repetition only as long as it exists. Its time to live after its end should be at least
//     some minutes. Otherwise it may run twice if a relay dies right after scheduling it.
//   - Several relays share the work; each leases entries. If a relay dies, its lease expires and another relay delivers
//     the entry again. Times are those of the database, so the clocks of writers and relays do not matter.
//   - An entry ends as delivered, or as rejected with the reason. After any other error of Deliver it is retried, at
//     growing intervals.
//
// # Parts
//
//   - table (table.go, lease.go): the rows and their leases; the state and the locks are those of the database.
//   - signal (outbox.go): wakes the relays of this process; its own lock.
//   - run (relay.go): the loop of a relay. Only its goroutine uses its state; deliveries hand it their outcomes.
//   - Outbox connects a table and a signal.
package outbox
