package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/internal/cut"
)

// Objects from a store that drops fields (cache.Content) lack those fields. A write of such an object as a whole would
// remove or overwrite them on the server.

// DroppedError is returned when a write of a whole object might remove or overwrite fields that the cache drops. It
// matches ErrPruned. Modify and Patch send the difference instead. An object that was read through Client.Live has all
// fields; its managedFields show that.
type DroppedError struct {
	Paths []string // fields that the server has and the cache drops
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("%v: the cache does not keep %s; use Modify or Patch, which send the difference",
		ErrPruned, strings.Join(e.Paths, ", "))
}

// Is reports whether target is ErrPruned.
func (e *DroppedError) Is(target error) bool { return target == ErrPruned }

// checkDropped returns a DroppedError if a write of the whole object could lose fields that a store drops. It calls
// want only if necessary.
func (c *cachedObject) checkDropped(obj Object, subresource string, want func() (map[string]any, error)) error {
	lost, err := c.dropped(obj, subresource, want)
	if err == nil && len(lost) > 0 {
		err = &DroppedError{Paths: lost}
	}
	return err
}

// dropped returns the fields that a store drops and that the server takes from a write of the whole object. It excludes
// fields whose value equals that in a store of whole objects.
func (c *cachedObject) dropped(
	obj Object, subresource string, want func() (map[string]any, error),
) (lost []string, _ error) {
	if obj.GetUID() == "" && obj.GetResourceVersion() == "" {
		return nil, nil // a new object, which replaces any existing one
	}
	for _, st := range c.stores.written(c.k.gvr) {
		if kept := st.Options().Content; len(kept.Drop) == 0 || !kept.ManagedFields && len(obj.GetManagedFields()) > 0 {
			continue // not from this store
		}
		r, ok := st.Get(c.key)
		if !ok {
			continue
		}
		for _, path := range r.Dropped() {
			same, err := c.hasValue(obj, path, want)
			if err != nil {
				return nil, err
			}
			if takes(subresource, path) && !same && !slices.Contains(lost, path) {
				lost = append(lost, path)
			}
		}
	}
	return lost, nil
}

// takes reports whether the server uses a field of the request. An update of the status changes only the status and,
// for some kinds, metadata.
func takes(subresource, path string) bool {
	return subresource != "status" || strings.HasPrefix(path, "status") || strings.HasPrefix(path, "metadata")
}

// hasValue reports whether obj has the complete value at path, according to a store of whole objects with the same
// version.
func (c *cachedObject) hasValue(obj Object, path string, want func() (map[string]any, error)) (bool, error) {
	r := c.whole()
	if r == nil || len(r.Content().Drop) > 0 || r.Version() != obj.GetResourceVersion() {
		return false, nil
	}
	raw, err := r.AppendJSON(nil)
	if err != nil {
		return false, err
	}
	stored, err := content.Decode(raw)
	if err != nil {
		return false, err
	}
	sent, err := want()
	if err != nil {
		return false, err
	}
	p, err := cut.Parse([]string{path})
	if err != nil {
		return false, err
	}
	return content.Lacking(content.At(stored, p.Path(0)), content.At(sent, p.Path(0)), path) == "", nil
}
