// Package op is the command fairlead op: it schedules, shows, awaits and cancels operations.
//
//   - op.go: the flags of all commands, and the scheduler that they use.
//   - schedule.go, list.go, wait.go, describe.go: one command each. op.go has the short ones.
//   - print.go: tables, JSON and YAML of operations.
//
// A command runs once in one goroutine. There is no shared state and no lock.
package op
