// Package watch is the command fairlead watch: a source and a store of one resource, and a printer of the changes.
//
//   - watch.go: the flags.
//   - resource.go: the resource of a name on the command line. No state.
//   - follow.go: wiring. It runs the source, the store and, with a group, the membership, and prints until one ends.
//   - printer.go: counts events and writes them in a format. Its mutex guards the format, the counts and the output.
//   - format.go, json.go, table.go, screen.go: the formats. They have no lock; the printer calls them one at a time.
//   - interruptible.go: a writer that no longer waits for a stopped reader after an interrupt. No lock.
//   - membership.go: the member of a group. It connects the following parts and has no state.
//   - slots.go: the slots that this process shows. Its mutex guards the held and the lost slots, and it is held during
//     output, so that no event of a lost slot is shown.
//   - departures.go: hides changes of objects whose slot has left. slots.go uses it with its mutex held.
//   - feed.go: consumes changes in one goroutine. Its channels let other goroutines wait for the pending ones.
//
// Lock order: the mutex of slots.go, then that of printer.go.
package watch
