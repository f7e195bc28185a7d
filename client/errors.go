package client

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
)

var (
	// ErrNotWatched is matched when only the cache can answer, and it does not hold the kind or namespace or has not
	// listed it yet.
	ErrNotWatched = errors.New("not watched")

	// errNoName is matched when an object has no name, or has no namespace and its kind is namespaced.
	errNoName = errors.New("the object has no name or no namespace")

	// ErrNotMade is matched by all calls of a nil client. The client of a runtime whose New has failed is nil; Run
	// returns the cause.
	ErrNotMade = call.ErrNotMade

	// ErrNil is matched when a required object or function is nil.
	ErrNil = errors.New("it is nil")

	// errNoVersion is matched when a write must carry a resourceVersion and none is known.
	errNoVersion = errors.New("the object has no resourceVersion")

	// ErrNoUID is matched when a call needs the uid of an object that has none.
	ErrNoUID = errors.New("the object has no uid")

	// ErrPruned is matched when a write of a whole object would make the server remove fields. The Go type does not know
	// them, the cache does not keep them (DroppedError), or the object is only metadata. Modify and Patch send the
	// difference instead.
	ErrPruned = errors.New("the object lacks fields of the object that it replaces")

	// ErrWasRead is matched when an object to apply was read or holds the answer to a write. It contains the fields of
	// users and other managers, and the apply would make its owner a co-owner of them.
	ErrWasRead = errors.New("the object was read, and applying it would take over the fields of other managers: " +
		"apply a new object with only your fields, or change this object with Modify")

	// ErrReplaced is matched when the object was deleted and another one of the same name was created.
	ErrReplaced = errors.New("the object was replaced by another object of the same name")

	// ErrFenced is matched when the context or client may no longer send requests: its fiber was preempted, or its
	// leadership lost.
	ErrFenced = errors.New("requests are no longer permitted")

	// ErrCacheBehind is matched when the cache did not catch up in time: in WaitForCache, in DeleteCollection if the
	// remaining objects could not be listed, and in Modify after a conflict if versions cannot be ordered.
	ErrCacheBehind = errors.New("the cache does not show it yet")

	// ErrTooManyConflicts is matched when Modify gives up. The error also unwraps to the last conflict.
	ErrTooManyConflicts = errors.New("too many conflicts")

	// ErrStatusApart is matched when one write changes the status and other fields, and the status of the kind is a
	// subresource. The server accepts only one of the two. ModifyStatus has then sent nothing; Modify has written the
	// other fields.
	ErrStatusApart = errors.New("the status is a subresource, written separately")

	// ErrShared is matched when a write would store its answer in an object that all readers of the cache share. Use a
	// DeepCopy.
	ErrShared = errors.New("the object is shared with all readers of the cache: use a copy")

	// errNoIndex is matched when a list uses an index that the store does not have.
	errNoIndex = errors.New("no such index")
)

// Error names the operation and the object that failed. It unwraps to the cause: one of the errors above, a
// *call.Error, or the cause of the context. A *call.Error works with apierrors.IsNotFound and similar functions.
type Error struct {
	Op   string // get, list, create, update status, …
	Kind string
	Key  cache.Key
	Err  error
}

func (e *Error) Error() string {
	if e.Key == (cache.Key{}) {
		return fmt.Sprintf("cannot %s %s: %v", e.Op, e.Kind, e.Err)
	}
	return fmt.Sprintf("cannot %s %s %s: %v", e.Op, e.Kind, e.Key, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
