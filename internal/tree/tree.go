// Package tree compares objects as JSON values: map[string]any, []any, string, bool, numbers and nil, as a decoder
// returns them.
//
//	Same(a, b)                   a and b are identical, including null members
//	Equal(a, b)                  a and b are equal if a null member counts as absent
//	Difference(from, to)         the merge patch (RFC 7396) that turns from into to
//	Merged(patch, have)          the merge patch would not change have
//	Contains(have, want)         have is want with additional members, as after defaulting
//	Includes(have, want)         like Contains, with empty fields dropped and list elements added
//	Accounts(before, after, asked)  every change was requested
//
// The functions do not modify or retain their arguments. The result of Difference shares values with them. The
// functions are safe for concurrent use on values that do not change.
package tree

import (
	"reflect"
	"slices"
)

// At returns the value at a path of members, or nil.
func At(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// Same reports whether two values are identical, like reflect.DeepEqual but much faster.
func Same(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for name, v := range a {
			w, ok := b[name]
			if !ok || !Same(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && (a == nil) == (b == nil) && slices.EqualFunc(a, b, Same)
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case int64:
		b, ok := b.(int64)
		return ok && a == b
	case float64:
		b, ok := b.(float64)
		return ok && a == b
	}
	return reflect.DeepEqual(a, b)
}

// Equal reports whether two values are equal, where a null member counts as absent.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range b {
			if _, both := a[name]; !both && v != nil {
				return false
			}
		}
		for name, v := range a {
			if !Equal(v, b[name]) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	}
	return Same(a, b)
}

// Difference returns the JSON merge patch (RFC 7396) that turns from into to. It is empty if they are Equal. It
// replaces lists as a whole.
func Difference(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	for name, v := range to {
		old, had := from[name]
		if v == nil {
			if old != nil {
				patch[name] = nil
			}
			continue
		}
		before, wasMap := old.(map[string]any)
		after, isMap := v.(map[string]any)
		switch {
		case wasMap && isMap:
			if d := Difference(before, after); len(d) > 0 {
				patch[name] = d
			}
		case isMap:
			// In a merge patch null removes a member, so a new map is written as its difference from an empty map. An empty map
			// stays.
			patch[name] = Difference(map[string]any{}, after)
		case !had || !Same(old, v):
			patch[name] = v
		}
	}
	return patch
}

// Merged reports whether a merge patch (RFC 7396) would leave have unchanged.
func Merged(patch, have any) bool {
	p, ok := patch.(map[string]any)
	if !ok {
		return Equal(patch, have)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range p {
		if !Merged(v, h[name]) {
			return false
		}
	}
	return true
}

// Contains reports whether have has every member of want; it may have more. Lists must have the same length, and each
// element of have must contain that of want.
func Contains(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range w {
			there, ok := h[name]
			if !ok || !Contains(there, v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		return ok && slices.EqualFunc(h, w, Contains)
	}
	return Same(have, want)
}

// Includes reports whether have has every non-empty member of want. This applies in lists, too, which may have
// additional elements in between. Have may lack a member that is Empty in want: encoders write such members for unset
// fields, and servers drop them.
func Includes(have, want any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return have == nil && Empty(want)
		}
		for name, v := range w {
			if !Includes(h[name], v) {
				return false
			}
		}
		return true
	case []any:
		h, _ := have.([]any)
		for _, v := range w {
			i := slices.IndexFunc(h, func(x any) bool { return Includes(x, v) })
			if i < 0 {
				return false
			}
			h = h[i+1:]
		}
		return true
	case string:
		return want == have || w == "" && have == nil
	}
	return Same(have, want)
}

// Empty reports whether a value is null, an empty string or list, or a map of Empty values. Numbers and booleans are
// never empty.
func Empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, x := range v {
			if !Empty(x) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}

// Accounts reports whether the merge patch asked requests every difference between before and after. Lists must be as
// requested.
func Accounts(before, after, asked any) bool {
	if Same(before, after) {
		return true
	}
	b, isB := before.(map[string]any)
	a, isA := after.(map[string]any)
	m, isM := asked.(map[string]any)
	if !isM || !isA || !isB && before != nil {
		return Same(after, asked)
	}
	for name, v := range a {
		want, ok := m[name]
		if !ok {
			if old, had := b[name]; !had || !Same(old, v) {
				return false
			}
			continue
		}
		if !Accounts(b[name], v, want) {
			return false
		}
	}
	for name := range b {
		if _, still := a[name]; still {
			continue
		}
		if want, ok := m[name]; !ok || want != nil {
			return false
		}
	}
	return true
}

// AccountsForAll reports whether one of several merge patches requests each difference between before and after. Their
// order is unknown, so any of them may have been the last to change a value.
func AccountsForAll(before, after any, asked []any) bool {
	if len(asked) == 1 {
		return Accounts(before, after, asked[0])
	}
	if Same(before, after) {
		return true
	}
	b, isB := before.(map[string]any)
	a, isA := after.(map[string]any)
	if !isA || !isB && before != nil {
		return slices.ContainsFunc(asked, func(patch any) bool { return Same(after, patch) })
	}
	for name, v := range a {
		if old, had := b[name]; had && Same(old, v) {
			continue
		}
		wants := part(asked, name)
		if len(wants) == 0 || !AccountsForAll(b[name], v, wants) {
			return false
		}
	}
	for name := range b {
		if _, still := a[name]; !still && !slices.Contains(part(asked, name), any(nil)) {
			return false
		}
	}
	return true
}

// part returns the parts of the patches for one member.
func part(asked []any, name string) (parts []any) {
	for _, patch := range asked {
		if m, ok := patch.(map[string]any); ok {
			if want, ok := m[name]; ok {
				parts = append(parts, want)
			}
		}
	}
	return parts
}
