package engine

import (
	"fmt"
	"strings"
)

// A Moment names one event of a run by its content, so that the same plan reaches the same moment in runs with other
// timings. It is either a write of the subject, or a change of an object by anyone.
//
// A write is identified by verb, object, subresource and number: the second update of the status of web. A change is
// identified by the object and its normalized content before and after.
type Moment struct {
	Verb        string `json:"verb"`                  // create, update, patch, apply, delete, deletecollection, or change
	Object      string `json:"object"`                // resource[.group]/[namespace/]name
	Subresource string `json:"subresource,omitempty"` // of a write
	N           int    `json:"n,omitempty"`           // of a write: 1 for the first one with this verb, object and subresource
	From        string `json:"from,omitempty"`        // of a change: hash of the content before; empty if it was created
	To          string `json:"to,omitempty"`          // of a change: hash of the content after; empty if it was removed
}

// Change is the verb of a moment that is a change.
const Change = "change"

// Kind returns the resource and group of the object.
func (m Moment) Kind() string {
	kind, _, _ := strings.Cut(m.Object, "/")
	return kind
}

func (m Moment) String() string {
	if m.Verb == Change {
		switch {
		case m.From == "":
			return "the creation of " + m.Object
		case m.To == "":
			return "the removal of " + m.Object
		}
		return fmt.Sprintf("the change of %s (%s to %s)", m.Object, m.From, m.To)
	}
	what := m.Verb + " of " + m.Object
	if m.Subresource != "" {
		what = m.Verb + " of " + m.Subresource + " of " + m.Object
	}
	return "the " + ordinal(m.N) + " " + what
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}
