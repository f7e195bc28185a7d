package dependent

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
)

var (
	// errInvalid is matched by the errors of a declaration, such as two nodes of one name, a cycle, or a function of the
	// wrong type. The Run of the runtime returns it before any request.
	errInvalid = errors.New("invalid graph")
	// ErrForeign is matched when an object has the name of a child but does not belong to the primary. The controller does
	// not write it; [Adopt] allows that.
	ErrForeign = errors.New("the object has another owner")
	// ErrImmutable is matched when the API server refuses to change an existing child. [Recreate] replaces the child.
	ErrImmutable = errors.New("the API server rejects this change")
	// errNothing is matched when a function returns nil, or a set with nil, as the desired child without an error. Only
	// [If] removes a child.
	errNothing = errors.New("the function returned no object; use If for an optional child")
	// errUnfit is matched when the desired object cannot be a child. It has no name, another kind, no namespace, or is
	// twice in a set.
	errUnfit = errors.New("the object cannot be a child")
	// ErrContended is matched while another client keeps changing owned fields of a child. The child is restored with
	// back-off.
	ErrContended = errors.New("another writer keeps changing fields that this controller owns")
	// ErrNotReady is matched when a child was not ready within the [Timeout] of its node. The node continues to wait.
	ErrNotReady = errors.New("the child was not ready in time")
)

// ChildError is the error of an operation on a child. Errors.Is finds the errors above and those of the API.
type ChildError struct {
	Node string
	Kind schema.GroupVersionKind // empty for an external resource
	Key  client.Key              // empty if the child has no name yet
	Op   string                  // the operation: "apply", "delete", …
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
