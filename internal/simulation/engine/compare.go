package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// absent is the value of a field that is missing.
const absent = "<absent>"

// A Difference is one field, or one whole object, in which two states differ.
type Difference struct {
	Object string `json:"object"`
	Path   string `json:"path,omitempty"` // empty: the object itself
	// Want and Got are the values without and with faults, as JSON, or the numbers of objects if Path is empty.
	Want string `json:"want"`
	Got  string `json:"got"`
}

func (d Difference) String() string {
	if d.Path != "" {
		return fmt.Sprintf("%s: %s is %s; without the fault it is %s", d.Object, d.Path, d.Got, d.Want)
	}
	switch {
	case d.Want == "0":
		return d.Object + " exists" + times(d.Got) + "; without the fault it does not"
	case d.Got == "0":
		return d.Object + " is missing"
	}
	return fmt.Sprintf("%s exists %s times; without the fault %s", d.Object, d.Got, d.Want)
}

// more reports whether there are more objects than without faults.
func (d Difference) more() bool {
	return d.Path == "" && (len(d.Got) > len(d.Want) || len(d.Got) == len(d.Want) && d.Got > d.Want)
}

func times(n string) string {
	if n == "1" {
		return ""
	}
	return " " + n + " times"
}

// Want is the final state without faults. It is not modified after its creation.
type Want struct {
	End    State    `json:"end"`
	Mask   Mask     `json:"mask"`
	Ignore []string `json:"ignore"`
}

// Equals reports whether a state is the wanted one.
func (w *Want) Equals(s State) bool { return len(diff(w.End, s, w.Mask, w.Ignore)) == 0 }

// A Mask holds fields and objects that differ between runs without faults, as object and path with a space between
// them. An empty path masks the whole object.
type Mask map[string]bool

func (m Mask) covers(object, path string) bool { return m[object+" "+path] }

// Add masks all differences of two states.
func (m Mask) Add(a, b State) {
	for _, d := range diff(a, b, nil, nil) {
		m[d.Object+" "+d.Path] = true
	}
}

// Names returns the masked objects and fields, sorted.
func (m Mask) Names() []string {
	var out []string
	for k := range m {
		out = append(out, strings.TrimSuffix(k, " "))
	}
	slices.Sort(out)
	return out
}

// diff returns the differences of two states that neither the mask nor the ignored paths cover, sorted. An ignored path
// is "field.path" for all objects, or "resource:field.path". "resource:*" is all objects of a resource. A resource may
// be written with or without its group.
func diff(want, got State, mask Mask, ignore []string) []Difference {
	refs := map[string]bool{}
	for ref := range want {
		refs[ref] = true
	}
	for ref := range got {
		refs[ref] = true
	}
	var out []Difference
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		a, b := want[ref], got[ref]
		if mask.covers(ref, "") || ignored(ignore, ref, "*") {
			continue
		}
		if len(a) != len(b) {
			out = append(out, Difference{Object: ref, Want: fmt.Sprint(len(a)), Got: fmt.Sprint(len(b))})
			continue
		}
		compare := func(x, y map[string]any) []Difference {
			var found []Difference
			fields(x, y, "", func(path, x, y string) {
				if !mask.covers(ref, path) && !ignored(ignore, ref, path) {
					found = append(found, Difference{Object: ref, Path: path, Want: x, Got: y})
				}
			})
			return found
		}
		out = append(out, closest(a, b, compare)...)
	}
	return out
}

// closest pairs each object of a with the object of b that differs least, and returns the differences. Objects that
// share a reference have generated names, so their order says nothing.
func closest(a, b []map[string]any, compare func(x, y map[string]any) []Difference) []Difference {
	var out []Difference
	left := slices.Clone(b)
	for _, x := range a {
		best, least := 0, compare(x, left[0])
		for i := 1; i < len(left) && len(least) > 0; i++ {
			if found := compare(x, left[i]); len(found) < len(least) {
				best, least = i, found
			}
		}
		out = append(out, least...)
		left = slices.Delete(left, best, best+1)
	}
	return out
}

// kindOf returns the resource of a reference.
func kindOf(ref string) string {
	kind, _, _ := strings.Cut(ref, "/")
	return kind
}

// ignored reports whether a path of an object is ignored. "*" is the object itself.
func ignored(ignore []string, ref, path string) bool {
	for _, p := range ignore {
		kind, rest, ok := strings.Cut(p, ":")
		switch {
		case !ok && path != "*":
			rest = p
		case !ok || !isKind(kind, kindOf(ref)):
			continue
		}
		if path == rest || strings.HasPrefix(path, rest+".") || strings.HasPrefix(path, rest+"[") {
			return true
		}
	}
	return false
}

// isKind reports whether a name, with or without its group, is that of a resource.
func isKind(name, resource string) bool {
	short, _, _ := strings.Cut(resource, ".")
	return name == resource || name == short
}

// fields calls fn for each leaf in which a and b differ, in the order of their paths.
func fields(a, b any, path string, fn func(path, a, b string)) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := map[string]bool{}
			for k := range x {
				keys[k] = true
			}
			for k := range y {
				keys[k] = true
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				vx, inX := x[k]
				vy, inY := y[k]
				sub := join(path, k)
				switch {
				case !inX:
					fn(sub, absent, text(vy))
				case !inY:
					fn(sub, text(vx), absent)
				default:
					fields(vx, vy, sub, fn)
				}
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			lists(x, y, path, fn)
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		fn(path, text(a), text(b))
	}
}

// lists compares elements with a name, type or key field by that field, and others by position.
func lists(a, b []any, path string, fn func(path, a, b string)) {
	if id := identifier(a, b); id != "" {
		x, y := map[string]any{}, map[string]any{}
		for _, e := range a {
			x[e.(map[string]any)[id].(string)] = e
		}
		for _, e := range b {
			y[e.(map[string]any)[id].(string)] = e
		}
		if len(x) == len(a) && len(y) == len(b) {
			fields(x, y, path, fn)
			return
		}
	}
	for i := range max(len(a), len(b)) {
		sub := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(a):
			fn(sub, absent, text(b[i]))
		case i >= len(b):
			fn(sub, text(a[i]), absent)
		default:
			fields(a[i], b[i], sub, fn)
		}
	}
}

// identifier returns the field by which all elements of both lists can be told apart, or "".
func identifier(a, b []any) string {
	for _, id := range []string{"name", "type", "key", "uid"} {
		ok := len(a)+len(b) > 0
		for _, e := range slices.Concat(a, b) {
			m, isMap := e.(map[string]any)
			if _, isText := m[id].(string); !isMap || !isText {
				ok = false
				break
			}
		}
		if ok {
			return id
		}
	}
	return ""
}

func join(path, key string) string {
	if strings.ContainsAny(key, "./") {
		key = "[" + key + "]"
		return path + key
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func text(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return shortened(strings.TrimSpace(b.String()))
}

// shortened returns a text that fits a line.
func shortened(s string) string {
	if len(s) > 200 {
		return s[:197] + "…"
	}
	return s
}

// Summary returns the first n differences of two versions of one object as "path: a → b".
func Summary(a, b map[string]any, n int) []string {
	if a == nil || b == nil {
		return nil
	}
	var out []string
	more := 0
	fields(a, b, "", func(path, x, y string) {
		if len(out) == n {
			more++
			return
		}
		out = append(out, fmt.Sprintf("%s: %s → %s", path, x, y))
	})
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}
