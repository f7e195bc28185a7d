// Package pending adds the answers of writes to the stores before the writer learns of them, so its next read sees the
// write. Package client uses it for its own writes and for those of a client-go program.
//
//   - [Writes] announces a write to all stores of its resource. It has no state of its own.
//   - [Write] is one write in progress: what each store showed when it began. Its caller ends it exactly once.
//   - [Answer] is the decoded answer of the server.
//   - [Objects] are the objects that a delete of a collection may have deleted.
//
// The package starts goroutines only while a store has to be brought up to date, and waits for them.
package pending
