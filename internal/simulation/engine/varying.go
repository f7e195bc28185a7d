package engine

import (
	"hash/fnv"
	"maps"
	"slices"
)

// Values holds hashes of the texts that the fields of a run had, by object and path. A path has the keys that lead to a
// field; all elements of a list have the same path.
type Values map[string]map[string]map[uint32]bool

// Add adds the fields of normalized content.
func (v Values) Add(object string, content map[string]any) {
	if v[object] == nil {
		v[object] = map[string]map[uint32]bool{}
	}
	v.add(v[object], "", content)
}

func (v Values) add(to map[string]map[uint32]bool, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for k, x := range value {
			v.add(to, path+"."+k, x)
		}
	case []any:
		for _, x := range value {
			v.add(to, path+"[]", x)
		}
	case string:
		if to[path] == nil {
			to[path] = map[uint32]bool{}
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(value))
		to[path][h.Sum32()] = true
	}
}

// varies stands for the text of a field that varies.
const varies = "<varies>"

// Varying is a set of fields whose texts differ from run to run, such as a password, as object and path with a space
// between them. They do not identify a moment.
type Varying map[string]bool

// NewVarying returns a set with these elements.
func NewVarying(fields []string) Varying {
	out := Varying{}
	for _, f := range fields {
		out[f] = true
	}
	return out
}

// varyingFields returns the fields that had a text in each of two runs which they did not have in the other, sorted.
func varyingFields(runs []*Outcome) []string {
	out := Varying{}
	for i, a := range runs {
		for _, b := range runs[:i] {
			for object, paths := range a.Values {
				for path, of := range paths {
					if differ(of, b.Values[object][path]) {
						out[object+" "+path] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// differ reports whether each set has an element that the other one lacks.
func differ(a, b map[uint32]bool) bool {
	lacks := func(in, other map[uint32]bool) bool {
		for x := range in {
			if !other[x] {
				return true
			}
		}
		return false
	}
	return lacks(a, b) && lacks(b, a)
}

// Hash returns a short hash of the content of an object without the fields that vary.
func (v Varying) Hash(object string, content map[string]any) string {
	if len(v) == 0 || content == nil {
		return Hash(content)
	}
	rest, _ := v.without(object+" ", content).(map[string]any)
	return Hash(rest)
}

func (v Varying) without(path string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for k, x := range value {
			out[k] = v.without(path+"."+k, x)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, x := range value {
			out[i] = v.without(path+"[]", x)
		}
		return out
	case string:
		if v[path] {
			return varies
		}
	}
	return value
}
