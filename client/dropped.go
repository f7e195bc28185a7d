package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/cut"
)

// Objects of a store that drops fields (cache.Content) lack them, and to send one whole would take them from the
// server, or put something else in their place.

// DroppedError says that an object was to be sent whole, and may lack, or overwrite, what the cache does not keep of
// it. It matches ErrPruned. Modify and Patch send the difference; an object that was read with Client.Live has all
// fields, as its managedFields tell.
type DroppedError struct {
	Paths []string // what the server has and the cache does not keep
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("%v: the cache does not keep %s; use Modify or Patch, which send the difference",
		ErrPruned, strings.Join(e.Paths, ", "))
}

// Is has it match ErrPruned.
func (e *DroppedError) Is(target error) bool { return target == ErrPruned }

// incomplete says what an object that is to be sent whole may lack because a store does not keep it. What a store of
// whole objects shows to be the same is not lost. content is called if it is needed.
func (w *writing) incomplete(obj Object, content func() (map[string]any, error)) error {
	if obj.GetUID() == "" && obj.GetResourceVersion() == "" {
		return nil // it was built anew, to replace the object whatever there is
	}
	var lost []string
	for _, st := range w.c.written(w.k.gvr) {
		if kept := st.Options().Content; len(kept.Drop) == 0 || !kept.ManagedFields && len(obj.GetManagedFields()) > 0 {
			continue // it is not from there
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

// takes says whether the server would take a field from what is sent: of an update of the status only that, and of
// some kinds metadata.
func (w *writing) takes(path string) bool {
	return w.sub != "status" || strings.HasPrefix(path, "status") || strings.HasPrefix(path, "metadata")
}

// keeps says whether an object has at a path all that there is, as a store of whole objects shows it in this version.
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

// at returns what an object has at a path; nil if nothing.
func at(o map[string]any, path []string) any {
	for _, member := range path[:len(path)-1] {
		o, _ = o[member].(map[string]any)
	}
	return o[path[len(path)-1]]
}
