package engine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	shortestRandom = 4  // characters of the random part of a name
	shortestAlone  = 5  // characters of a random part that is replaced wherever it occurs
	mostRandom     = 20 // expressions, for a subject whose names have nothing in common
)

var (
	word = regexp.MustCompile(`[a-z0-9]+`)
	// alphabets are those from which random parts are made, the smallest first. The first one is that of Kubernetes.
	alphabets = []string{"[b-df-hj-np-tv-z2-9]", "[0-9a-f]", "[a-z0-9]"}
)

// Keys holds the texts that identify the elements of lists, such as the names of volumes. An element of the set is the
// kind of the object, the path of the list, a slash, and the text.
type Keys map[string]bool

// Add adds the keys in the normalized content of an object with this canonical reference.
func (k Keys) Add(object string, content map[string]any) {
	kind, _, _ := strings.Cut(object, "/")
	k.add(kind+" ", content)
}

func (k Keys) add(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, x := range value {
			k.add(path+"."+key, x)
		}
	case []any:
		id := identifier(value, nil)
		for _, x := range value {
			if id != "" {
				k[path+"[]/"+x.(map[string]any)[id].(string)] = true
			}
			k.add(path+"[]", x)
		}
	}
}

// randomNames returns expressions of names that the subject makes up itself, such as "web-x7x2k" or "web-x7x2k-data".
// These names differ from run to run, and no generateName tells what is random. An expression matches the text up to
// the end of a random part, and its group is the text before that part. The names are those of objects and of elements
// of lists.
func randomNames(runs []*Outcome) []string {
	seen := make([]map[string]bool, len(runs))
	for i, run := range runs {
		seen[i] = map[string]bool{}
		maps.Copy(seen[i], run.Keys)
		for _, e := range run.Trace {
			for _, ref := range []string{e.Write.Object, e.Changed.Object} {
				seen[i][ref] = true
			}
		}
	}
	var out []string
	for len(out) < mostRandom {
		expression := randomName(seen)
		if expression == "" {
			break
		}
		out = append(out, expression)
		names := newRandom(out[len(out)-1:])
		for i, refs := range seen {
			seen[i] = map[string]bool{}
			for ref := range refs {
				seen[i][names.replace(ref)] = true
			}
		}
	}
	return out
}

// randomName returns the expression of the first random part of a name, or "". Such a name is in one set only, and each
// other set has one of the same shape for itself.
func randomName(seen []map[string]bool) string {
	own := make([][]string, len(seen)) // references that no other set has
	for i, refs := range seen {
		for ref := range refs {
			if !slices.ContainsFunc(seen[:i], has(ref)) && !slices.ContainsFunc(seen[i+1:], has(ref)) {
				own[i] = append(own[i], ref)
			}
		}
		slices.Sort(own[i])
	}
	for _, ref := range own[0] {
		name := strings.LastIndex(ref, "/") + 1
		for _, at := range word.FindAllStringIndex(ref[name:], -1) {
			from, to := name+at[0], name+at[1]
			if from == name || to-from < shortestRandom {
				continue
			}
			if parts := alike(own, ref, from, to); parts != nil {
				return fmt.Sprintf(`\b(%s)%s{%d}\b`, regexp.QuoteMeta(ref[name:from]), alphabet(parts), to-from)
			}
		}
	}
	return ""
}

func has(ref string) func(map[string]bool) bool {
	return func(refs map[string]bool) bool { return refs[ref] }
}

// alike returns the texts at these positions of all references that are like ref before, and have its shape after. It
// is nil if a set has no such reference, or all have the same text.
func alike(own [][]string, ref string, from, to int) []string {
	var out []string
	for _, refs := range own {
		found := false
		for _, other := range refs {
			if len(other) == len(ref) && other[:from] == ref[:from] && shape(other[from:]) == shape(ref[from:]) {
				out, found = append(out, other[from:to]), true
			}
		}
		if !found {
			return nil
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(out)))) == 1 {
		return nil
	}
	return out
}

// shape returns the text with the same letter at each place of a word.
func shape(s string) string {
	return word.ReplaceAllStringFunc(s, func(w string) string { return strings.Repeat("x", len(w)) })
}

// alphabet returns the smallest alphabet that all parts are made of.
func alphabet(parts []string) string {
	for _, a := range alphabets {
		of := regexp.MustCompile("^" + a + "+$")
		if !slices.ContainsFunc(parts, func(part string) bool { return !of.MatchString(part) }) {
			return a
		}
	}
	return alphabets[len(alphabets)-1]
}

// random replaces the random parts of names by a star. It is not modified after its creation.
type random []*regexp.Regexp

// newRandom takes the result of randomNames. It panics if an expression is invalid.
func newRandom(expressions []string) random {
	var out random
	for _, e := range expressions {
		out = append(out, regexp.MustCompile(e))
	}
	return out
}

func (r random) replace(s string) string {
	for _, e := range r {
		s = e.ReplaceAllString(s, "${1}*")
	}
	return s
}

// parts returns the random parts of a name that are long enough to be told from other texts.
func (r random) parts(name string) []string {
	var out []string
	for _, e := range r {
		if at := e.FindStringSubmatchIndex(name); at != nil && at[1]-at[3] >= shortestAlone {
			out = append(out, name[at[3]:at[1]])
		}
	}
	return out
}
