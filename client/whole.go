package client

import (
	"errors"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// A Go type encodes zero fields that lack omitempty, and decodes an absent field to the same zero. A difference of two
// such objects omits these fields, so the server may refuse it because a required field is missing.

// original is the server's object that a difference starts from, as far as it is known.
type original struct {
	json func() (map[string]any, error) // the server's object without dropped fields; nil if only Go values are known
	drop []string                       // paths that the cache drops
}

func originalOf(r *cache.Record) original {
	return original{json: func() (map[string]any, error) {
		raw, err := r.AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		return contentOf(raw)
	}, drop: r.Dropped()}
}

// whole adds missing fields to the maps of a difference. A map that the server lacks gets all fields that the type
// encodes. With complete, a changed map of the status also gets the fields that the server lacks. whole returns false
// if only the server knows which fields it lacks.
func (s original) whole(patch, before, after map[string]any, complete bool) (bool, error) {
	var has map[string]any
	for field, change := range patch {
		change, isMap := change.(map[string]any)
		to, ok := after[field].(map[string]any)
		if !isMap || !ok || field == "metadata" {
			continue
		}
		if s.json == nil || slices.ContainsFunc(s.drop, func(path string) bool { return strings.HasPrefix(path, field) }) {
			from, _ := before[field].(map[string]any)
			if complete || fillIn(change, to, told(from), false) {
				return false, nil
			}
			continue
		}
		if has == nil {
			var err error
			if has, err = s.json(); err != nil {
				return false, err
			}
		}
		from, _ := has[field].(map[string]any)
		fillIn(change, to, from, complete && field == "status")
	}
	return true, nil
}

// fillIn adds to a merge patch the fields of to that has lacks: in maps that the patch creates and, with everywhere, in
// all maps that it changes. It reports whether it added any.
func fillIn(patch, to, has map[string]any, everywhere bool) (added bool) {
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
			if to, ok := v.(map[string]any); ok && fillIn(change, to, from, everywhere) {
				added = true
			}
		}
	}
	return added
}

// told returns the part of an encoded Go value that the server must have sent. It removes zero values and empty maps,
// because the Go type encodes them even if the server lacks them. It returns nil if no value remains.
func told(m map[string]any) map[string]any {
	out := maps.Clone(m)
	for name, v := range m {
		if sub, ok := v.(map[string]any); ok {
			if out[name] = told(sub); len(out[name].(map[string]any)) > 0 {
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

// lacksRequired reports whether the server refused a write because a required field is missing.
func lacksRequired(err error) bool {
	var refused apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &refused) || refused.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(refused.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeFieldValueRequired
	})
}
