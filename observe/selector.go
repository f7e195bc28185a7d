package observe

import (
	"slices"
	"strings"
)

// Selector connects sources with observers. It is a comparable value with a name, normally a package variable:
//
//	var Certificates = observe.Selector("certificates")
//
// Selectors match when they are equal. A selector made by [All] is a set. It matches a set with exactly the same
// members, in any order.
type Selector string

// separator separates the members of a set. It is unlikely to occur in a name.
const separator = "\x1f"

// All returns the selector that is the union of the members of the given selectors.
func All(selectors ...Selector) Selector {
	var names []string
	for _, s := range selectors {
		names = append(names, s.names()...)
	}
	slices.Sort(names)
	return Selector(strings.Join(slices.Compact(names), separator))
}

// names returns the names of the members in order: one name for a plain selector, none for an empty one.
func (s Selector) names() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), separator)
}

// String returns the names joined by " + ".
func (s Selector) String() string { return strings.Join(s.names(), " + ") }
