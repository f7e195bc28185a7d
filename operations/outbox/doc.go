// Package outbox carries requests from a caller's own SQL transaction to the scheduler: the request is written to a
// table of the caller's database, in the same transaction as the change that it belongs to, and relayed after the
// commit. So neither does a rolled back request run, nor is a committed one lost. The pattern is known as transactional
// outbox.
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
//	// Once per process, in as many processes as you like:
//	relay := &outbox.Relay{Outbox: box, Deliver: func(ctx context.Context, e outbox.Entry) error {
//		return schedule(ctx, e.ID, e.Payload)
//	}}
//	err = relay.Run(ctx)
//
// The package works on database/sql and needs no driver of its own; PostgreSQL 12 and SQLite 3.35 are the oldest that
// will do. On SQLite give the connections a busy_timeout, since a relay writes too.
//
// What holds:
//
//   - an entry is delivered at least once after its transaction was committed, and never when it was rolled back;
//   - each delivery of an entry carries the same ID, so that the receiver can tell a repetition;
//   - entries with the same Key are delivered in the order of their commits, one at a time: the next one starts when
//     the one before was delivered or rejected. Entries with different keys do not wait for each other;
//   - an Operation tells a repetition for as long as it is there: one with a time to live after its end should be kept
//     for some minutes, or it may be gone, and run again, when a relay dies right after it has scheduled it;
//   - several relays share the work: an entry is leased to one of them. A relay that dies loses its lease after a
//     while, and another one delivers the entry again. Times are those of the database: neither the clocks of writers
//     nor those of relays matter;
//   - an entry ends as delivered, or as rejected with the reason kept. As long as Deliver returns any other error it is
//     tried again, at growing intervals.
package outbox
