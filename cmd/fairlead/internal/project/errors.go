package project

import (
	"errors"
	"fmt"
)

// Problems of the input. Errors of this package match one of these, and name the value.
var (
	ErrModule    = errors.New("it is no path of a Go module")
	ErrGroup     = errors.New("it is no group of an API")
	ErrVersion   = errors.New("it is no version of an API")
	ErrKind      = errors.New("it is no kind of an API")
	ErrNotEmpty  = errors.New("the directory is not empty")
	ErrWrite     = errors.New("it cannot be written")
	ErrLibrary   = errors.New("it is not the directory of Fairlead's module")
	ErrNoProject = errors.New("it is no project of fairlead new")
	ErrExists    = errors.New("it is there already")
	ErrUnknown   = errors.New("the project does not have it")
	ErrTypes     = errors.New("its Go types cannot be copied")
	ErrTidy      = errors.New("the Go command cannot find the modules")
)

// invalid returns an error about a value.
func invalid(kind error, what, value, format string, args ...any) error {
	return fmt.Errorf("cannot use %s %q: %w: %s", what, value, kind, fmt.Sprintf(format, args...))
}

// Mistaken reports whether an error is about a name that the caller has chosen, as opposed to files on the disk.
func Mistaken(err error) bool {
	for _, kind := range []error{ErrModule, ErrGroup, ErrVersion, ErrKind} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
