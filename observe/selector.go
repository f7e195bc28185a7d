package observe

import (
	"slices"
	"strings"
)

// Selector pairs sources with observers. It is a comparable value with a name, normally a package variable:
//
//	var Certificates = observe.Selector("certificates")
//
// Selectors match when they are equal. A selector made by [All] is a set: it matches a set of the same members in
// any order, and neither a part of it nor more than it.
type Selector string

// separator stands between the members of a set. It cannot be typed by accident.
const separator = "\x1f"

// All returns the selector that is the set of all members of the given ones.
func All(selectors ...Selector) Selector {
	var names []string
	for _, s := range selectors {
		names = append(names, s.Names()...)
	}
	slices.Sort(names)
	return Selector(strings.Join(slices.Compact(names), separator))
}

// Names returns the names of the members in order; one name for a plain selector, none for an empty one.
func (s Selector) Names() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), separator)
}

// String returns the names joined by " + ".
func (s Selector) String() string { return strings.Join(s.Names(), " + ") }
