package client

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
)

var (
	// ErrNotWatched is matched when something can only be answered from the cache, and the cache does not hold the kind
	// or the namespace, or has not listed it yet.
	ErrNotWatched = errors.New("not watched")

	// errNoName is matched when an object has no name, or no namespace though its kind is namespaced.
	errNoName = errors.New("the object has no name or no namespace")

	// ErrNotMade is matched by all that is done with a nil client, as that of a runtime is whose New has failed; Run says
	// with what.
	ErrNotMade = call.ErrNotMade

	// ErrNil is matched when an object or a function that is needed is nil.
	ErrNil = errors.New("it is nil")

	// errNoVersion is matched when a write must carry a resourceVersion and none is known.
	errNoVersion = errors.New("the object has no resourceVersion")

	// ErrNoUID is matched when a write is asked to hold for one incarnation of an object that has no uid.
	ErrNoUID = errors.New("the object has no uid")

	// ErrPruned is matched when an object was to be sent whole that lacks fields of the one that it replaces, so that the
	// server would remove them: its Go type does not know them, the cache does not keep them (DroppedError), or it is the
	// metadata alone. Modify and Patch send the difference.
	ErrPruned = errors.New("the object lacks fields of the one that it replaces")

	// ErrWasRead is matched when an object was to be applied that was read, or is the answer to a write: it holds what
	// users and other managers set, and whoever applies that owns it with them from then on.
	ErrWasRead = errors.New("the object was read, and to apply it would take over what others have set in it: " +
		"apply a new one that has only the fields you want, or change this one with Modify")

	// ErrReplaced is matched when an object was deleted and created again: it is not the one that was meant.
	ErrReplaced = errors.New("the object was replaced by another one of its name")

	// ErrFenced is matched when no request may be sent any more in this context: its fiber was preempted, its leadership
	// lost.
	ErrFenced = errors.New("no request may be sent any more")

	// ErrCacheBehind is matched when the cache did not come as far as it was waited for: by WaitForCache, by
	// DeleteCollection when what is left could not be listed, and by Modify after a conflict where versions cannot be
	// ordered.
	ErrCacheBehind = errors.New("the cache does not show it yet")

	// ErrTooManyConflicts is matched when Modify gave up; the error also unwraps to the last conflict.
	ErrTooManyConflicts = errors.New("too many conflicts")

	// ErrStatusApart is matched when one write was to change the status and something else, of a kind whose status is a
	// subresource: the server takes only one of the two. ModifyStatus then has sent nothing; Modify has written the rest.
	ErrStatusApart = errors.New("the status is written apart from the rest")

	// ErrShared is matched when a write was given an object that all readers of the cache share, and that the answer would
	// have been written into. Use a DeepCopy.
	ErrShared = errors.New("the object is shared with all readers of the cache: use a copy of it")

	// errNoIndex is matched when a list asks for an index that the store does not have.
	errNoIndex = errors.New("no such index")
)

// Error says which operation on which object could not be made. It unwraps to the cause: one of the sentinels above, a
// *call.Error (of which apierrors.IsNotFound and its like see the server's answer), or the context's cause.
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

func (k *kind) fail(op string, key cache.Key, err error) error {
	return &Error{Op: op, Kind: k.gvk.Kind, Key: key, Err: err}
}

// absent is the error of a read of an object that the cache says does not exist; apierrors.IsNotFound knows it.
func (k *kind) absent(key cache.Key) error {
	return apierrors.NewNotFound(k.gvr.GroupResource(), key.Name)
}
