// Package op is the command fairlead op: it schedules, shows, awaits and cancels operations.
//
//   - op.go: the command, and its short subcommands get, cancel and retry.
//   - schedule.go, list.go, wait.go, describe.go: one subcommand each.
//   - options.go: the flags of all subcommands, and the scheduler that they use.
//   - print.go: tables, JSON and YAML of operations.
//
// A command runs once in one goroutine. There is no shared state and no lock.
package op
