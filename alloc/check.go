package alloc

import (
	"fmt"

	"github.com/fairlead-io/fairlead/client"
)

// check validates the arguments of Once and Release.
func (a *allocation[T, PT]) check(noFunction bool) error {
	switch {
	case a.c == nil:
		return client.ErrNotMade
	case a.obj == nil:
		return fmt.Errorf("the object: %w", client.ErrNil)
	case noFunction:
		return fmt.Errorf("the function: %w", client.ErrNil)
	}
	return nil
}
