// Package cli contains what several commands of fairlead share. It knows no command.
//
//   - streams.go: the input and output of a command, and the size of a terminal.
//   - exit.go: exit codes, usage errors, and errors that only set an exit code.
//   - connection.go: the flags that select the API server and the user.
//   - names.go: names of groups and of operations on the command line.
//   - text.go: foreign text without control characters, quoting for a shell, JSON and YAML.
//
// No value of this package has a lock. A command uses its values in one goroutine, except Streams. The writers of
// Streams are as safe for concurrent use as the files behind them.
package cli
