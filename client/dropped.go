package client

import (
	"fmt"
	"slices"
	"strings"

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

// incomplete returns a DroppedError if a write of the whole object could lose fields that a store drops. It excludes
// fields whose value equals that in a store of whole objects. It calls content only if necessary.
func (w *writing) incomplete(obj Object, content func() (map[string]any, error)) error {
	if obj.GetUID() == "" && obj.GetResourceVersion() == "" {
		return nil // a new object, which replaces any existing one
	}
	var lost []string
	for _, st := range w.c.written(w.k.gvr) {
		if kept := st.Options().Content; len(kept.Drop) == 0 || !kept.ManagedFields && len(obj.GetManagedFields()) > 0 {
			continue // not from this store
		}
		r, ok := st.Get(w.key)
		if !ok {
			continue
		}
		for _, path := range r.Dropped() {
			same, err := w.keeps(obj, path, content)
			if err != nil {
				return w.fail(err)
			}
			if w.takes(path) && !same && !slices.Contains(lost, path) {
				lost = append(lost, path)
			}
		}
	}
	if len(lost) > 0 {
		return w.fail(&DroppedError{Paths: lost})
	}
	return nil
}

// takes reports whether the server uses a field of the request. An update of the status changes only the status and,
// for some kinds, metadata.
func (w *writing) takes(path string) bool {
	return w.sub != "status" || strings.HasPrefix(path, "status") || strings.HasPrefix(path, "metadata")
}

// keeps reports whether obj has the complete value at path, according to a store of whole objects with the same
// version.
func (w *writing) keeps(obj Object, path string, content func() (map[string]any, error)) (bool, error) {
	r := w.whole()
	if r == nil || len(r.Content().Drop) > 0 || r.Version() != obj.GetResourceVersion() {
		return false, nil
	}
	raw, err := r.AppendJSON(nil)
	if err != nil {
		return false, err
	}
	has, err := contentOf(raw)
	if err != nil {
		return false, err
	}
	want, err := content()
	if err != nil {
		return false, err
	}
	p, err := cut.Parse([]string{path})
	if err != nil {
		return false, err
	}
	return lacking(at(has, p.Path(0)), at(want, p.Path(0)), path) == "", nil
}

// at returns the value at a path, or nil.
func at(o map[string]any, path []string) any {
	for _, member := range path[:len(path)-1] {
		o, _ = o[member].(map[string]any)
	}
	return o[path[len(path)-1]]
}
