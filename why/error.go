package why

import (
	"cmp"
	"errors"
	"slices"
)

// ErrNotFound is matched when there is no such object, and nothing is known under its name either.
var ErrNotFound = errors.New("no such object")

// Because returns err with causes that say more about it; nil if err is nil. It wraps err. A cause without a type is
// BackOff.
func Because(err error, causes ...Cause) error {
	if err == nil {
		return nil
	}
	causes = slices.Clone(causes)
	for i := range causes {
		causes[i].Type = cmp.Or(causes[i].Type, BackOff)
	}
	return &because{err, causes}
}

type because struct {
	error
	causes []Cause
}

func (b *because) Unwrap() error { return b.error }

// Of returns the causes that an error carries: those of the outermost that Because has made. The caller must not change
// them.
func Of(err error) []Cause {
	if b, ok := errors.AsType[*because](err); ok {
		return b.causes
	}
	return nil
}
