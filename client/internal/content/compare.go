package content

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// Lacking returns the path at which b lacks a value of a or has a different one; "" if there is none. It ignores nulls
// in a.
func Lacking(a, b any, at string) string {
	switch a := a.(type) {
	case nil:
		return ""
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok && (b != nil || len(a) == 0 && strings.Contains(at, ".")) { // an empty spec or status equals an absent one
			return at
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			below := key
			if at != "" {
				below = at + "." + key
			}
			if path := Lacking(a[key], m[key], below); path != "" {
				return path
			}
		}
		return ""
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return at
		}
		for i := range a {
			if path := Lacking(a[i], l[i], at+"["+strconv.Itoa(i)+"]"); path != "" {
				return path
			}
		}
		return ""
	}
	if !sameValue(a, b) {
		return at
	}
	return ""
}

// sameValue reports whether two values are equal, possibly in different notations of numbers, times, durations and
// quantities.
func sameValue(a, b any) bool {
	if tree.Same(a, b) {
		return true
	}
	switch a := a.(type) {
	case int64:
		f, ok := b.(float64)
		return ok && float64(a) == f
	case float64:
		n, ok := b.(int64)
		return ok && a == float64(n)
	case string:
		s, ok := b.(string)
		return ok && sameText(a, s)
	}
	return false
}

func sameText(a, b string) bool {
	t, err1 := time.Parse(time.RFC3339, a)
	u, err2 := time.Parse(time.RFC3339, b)
	if err1 == nil && err2 == nil && t.Equal(u) {
		return true
	}
	d, err1 := time.ParseDuration(a)
	e, err2 := time.ParseDuration(b)
	if err1 == nil && err2 == nil && d == e {
		return true
	}
	q, err1 := resource.ParseQuantity(a)
	r, err2 := resource.ParseQuantity(b)
	return err1 == nil && err2 == nil && q.Cmp(r) == 0
}
