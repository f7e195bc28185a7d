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

// A Go type encodes fields that are not omitempty although they are zero, and decodes them to the same where the server
// has nothing. Between two such objects there is no difference; what the server makes of the difference may lack all
// the same what its schema requires, and is refused then.

// original is what is known of the object on the server from which a difference is made.
type original struct {
	json func() (map[string]any, error) // as the server has it, but for what is dropped; nil: only Go values are known
	drop []string                       // paths
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

// whole adds to a difference what else its maps need, so that each can stand on the server: one that the server lacks
// has all that the type encodes; with complete, one of the status has what the server lacks of that, too. It returns
// false where only the server knows what it lacks.
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

// fillIn adds to a merge patch what the object is to have and has not: in the maps that the patch makes and, with
// everywhere, in all that it changes. It says whether there was something.
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

// told is what of an encoded Go value the server must have told: no map, and nothing in one, that is there where it has
// nothing. It is nil if that is all.
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

// lacksRequired says that the server has refused a write for what lacks in it.
func lacksRequired(err error) bool {
	var refused apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &refused) || refused.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(refused.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeFieldValueRequired
	})
}
