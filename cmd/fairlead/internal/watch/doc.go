// Package watch is the command fairlead watch: a source and a store of one resource, and a printer of the changes.
//
//   - watch.go: the flags.
//   - resource.go: the resource of a name on the command line. No state.
//   - follow.go: wiring. It runs the source, the store and, with a group, the membership, and prints until one ends.
//   - printer.go: counts events and writes them in a format. Its mutex guards the format, the counts and the output.
//   - json.go, table.go, screen.go, format.go: the formats. They have no lock; the printer calls them one at a time.
//   - membership.go: the slots of this process in a group. Its mutex guards the held and the lost slots, and it is held
//     during output, so that no event of a lost slot is shown.
//   - departures.go: hides changes of objects whose slot has left. The membership owns it, under the mutex above.
//   - interruptible.go: a writer that no longer waits for a stopped reader after an interrupt. No lock.
//
// Lock order: the mutex of the membership, then that of the printer.
package watch
