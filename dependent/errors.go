package dependent

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
)

var (
	// errInvalid is matched when a graph was declared wrongly: two nodes of one name, a cycle, a function that takes
	// something else. The runtime's Run returns it before anything is sent.
	errInvalid = errors.New("invalid graph")
	// ErrForeign is matched when an object has the name of a child and does not belong to the primary. It is not
	// written to; [Adopt] takes it over.
	ErrForeign = errors.New("it belongs to somebody else")
	// ErrImmutable is matched when the API server refuses a change of a child that exists. [Recreate] has it replaced.
	ErrImmutable = errors.New("the API server refuses this change of it")
	// errNothing is matched when a function that says what is desired returned nil, or a nil in a set, without an
	// error. Only [If] removes a child.
	errNothing = errors.New("nothing is desired: a child that is not wanted is said by If")
	// errUnfit is matched when what is desired cannot be a child: it has no name, is of another kind, is in no
	// namespace, or is in a set twice.
	errUnfit = errors.New("it cannot be a child")
	// ErrContended is matched while somebody else goes on changing what is owned of a child. It is put right with
	// back-off.
	ErrContended = errors.New("somebody else keeps changing what is owned of it")
	// ErrNotReady is matched when a child was not ready within the [Timeout] of its node. It is waited for all the
	// same.
	ErrNotReady = errors.New("it is not ready in time")
)

// ChildError tells what a child could not be, and why. Errors.Is finds the sentinels above and those of the API.
type ChildError struct {
	Node string
	Kind schema.GroupVersionKind // empty for what is external
	Key  client.Key              // empty if no child was named yet
	Op   string                  // what was done: "apply", "delete", …
	Err  error
}

func (e *ChildError) Error() string {
	switch {
	case e.Key == (client.Key{}):
		return fmt.Sprintf("cannot %s %s: %v", e.Op, e.Node, e.Err)
	default:
		return fmt.Sprintf("cannot %s %s (%s %s): %v", e.Op, e.Node, e.Kind.Kind, e.Key, e.Err)
	}
}

func (e *ChildError) Unwrap() error { return e.Err }
