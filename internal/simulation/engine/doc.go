// Package engine decides which faults to play, and judges what they lead to. It knows no cluster: a [Driver] plays a
// schedule and returns its outcome.
//
//   - moment.go: names a write or a change by its content. No state.
//   - plan.go: a schedule, its faults, and their text and JSON form. No state.
//   - outcome.go: what a driver returns: the trace, the final state, and what went wrong. No state.
//   - normal.go: rewrites an object so that two runs can be compared. No state.
//   - names.go: finds the names that a subject makes up at random. No state.
//   - compare.go: the difference of two final states, and the fields that differ without any fault. No state.
//   - enumerate.go: all plans with a single fault, and random pairs. No state.
//   - verdict.go: judges an outcome against the reference. No state.
//   - search.go: Search plays reference and plans, confirms and shrinks findings. It owns the report while it runs.
//   - report.go: the report as text. html.go: the same as a page.
package engine
