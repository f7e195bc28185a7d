package why

import (
	"cmp"
	"errors"
	"slices"
)

// ErrNotFound is matched if the object does not exist, and no state is known for its name.
var ErrNotFound = errors.New("no such object")

// Because wraps err with causes. It returns nil if err is nil. A cause without a type becomes BackOff.
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

// Of returns the causes that an error carries, from the outermost Because. The caller must not modify them.
func Of(err error) []Cause {
	if b, ok := errors.AsType[*because](err); ok {
		return b.causes
	}
	return nil
}
