package content

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// A Go type encodes zero fields that lack omitempty, and decodes an absent field to the same zero. A difference of two
// such objects omits these fields, so the server may refuse it because a required field is missing.

// Original is the server's object that a difference starts from, as far as it is known.
type Original struct {
	JSON func() (map[string]any, error) // the server's object without dropped fields; nil if only Go values are known
	Drop []string                       // paths that the cache drops
}

// Complete adds missing fields to the maps of a difference. A map that the server lacks gets all fields that the type
// encodes. With all, a changed map of the status also gets the fields that the server lacks. Complete returns false
// if only the server knows which fields it lacks.
func (o Original) Complete(patch, before, after map[string]any, all bool) (bool, error) {
	var has map[string]any
	for field, change := range patch {
		change, isMap := change.(map[string]any)
		to, ok := after[field].(map[string]any)
		if !isMap || !ok || field == "metadata" {
			continue
		}
		if o.JSON == nil || slices.ContainsFunc(o.Drop, func(path string) bool { return strings.HasPrefix(path, field) }) {
			from, _ := before[field].(map[string]any)
			if all || addMissing(change, to, withoutZeros(from), false) {
				return false, nil
			}
			continue
		}
		if has == nil {
			var err error
			if has, err = o.JSON(); err != nil {
				return false, err
			}
		}
		from, _ := has[field].(map[string]any)
		addMissing(change, to, from, all && field == "status")
	}
	return true, nil
}

// addMissing adds to a merge patch the fields of to that has lacks: in maps that the patch creates and, with
// everywhere, in all maps that it changes. It reports whether it added any.
func addMissing(patch, to, has map[string]any, everywhere bool) (added bool) {
	for name, v := range to {
		change, changed := patch[name]
		if !changed {
			if _, there := has[name]; v != nil && !there && (has == nil || everywhere) {
				patch[name] = tree.Difference(nil, map[string]any{name: v})[name]
				added = true
			}
			continue
		}
		if change, ok := change.(map[string]any); ok {
			from, _ := has[name].(map[string]any)
			if to, ok := v.(map[string]any); ok && addMissing(change, to, from, everywhere) {
				added = true
			}
		}
	}
	return added
}

// withoutZeros returns the part of an encoded Go value that the server must have sent. It removes zero values and empty
// maps, because the Go type encodes them even if the server lacks them. It returns nil if no value remains.
func withoutZeros(m map[string]any) map[string]any {
	out := maps.Clone(m)
	for name, v := range m {
		if sub, ok := v.(map[string]any); ok {
			if out[name] = withoutZeros(sub); len(out[name].(map[string]any)) > 0 {
				continue
			}
		} else if !tree.Empty(v) && v != false && v != int64(0) && v != float64(0) {
			continue
		}
		delete(out, name)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
