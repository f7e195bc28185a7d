package cli

import "fmt"

// Exit codes of the program. A command that runs another program returns its exit code.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2

	ExitInterrupted = 130 // as shells report Ctrl-C
)

// UsageError is a mistake of the user: exit code 2.
type UsageError struct{ text string }

// Error implements error.
func (e *UsageError) Error() string { return e.text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ExitError ends the program with an exit code, without a message.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }
