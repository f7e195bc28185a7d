package pages

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Health is the state of the program. The banner of all pages and the overview show the same state.
type Health struct {
	Stale      string // time since the API server's last confirmation; empty if short
	Problems   []string
	Blocked    []Blocked
	Conditions []Condition
}

// OK reports whether there are no problems at all.
func (h *Health) OK() bool { return h.Limited() && len(h.Conditions) == 0 }

// Limited reports whether there are no problems except resources that the API server refuses.
func (h *Health) Limited() bool { return h.Stale == "" && len(h.Problems) == 0 && len(h.Blocked) == 0 }

// Blocked is a controller or an engine whose workers are blocked.
type Blocked struct {
	Name  string // such as "controller maps"
	At    string // the things that the workers process: objects or steps
	Page  string // the page with details, without "/console/"
	Since time.Time
}

// Title returns the name of the page.
func (b Blocked) Title() string { return strings.ToUpper(b.Page[:1]) + b.Page[1:] }

// PageFlows is the page of the fibers.
const PageFlows = "flows"

// EngineBlocked returns the row of an engine.
func EngineBlocked(name string, since time.Time) Blocked {
	return Blocked{Name: name, At: "steps", Page: PageFlows, Since: since}
}

// Condition is a resource that the API server does not serve, or that it forbids the program to read.
type Condition struct {
	Namespace string // empty: all
	Kind      schema.GroupKind
	Text      string // for all readers of a page of the kind
}

// Refused returns the conditions that affect a page: those of its kinds, in a namespace if it is not empty.
func (h *Health) Refused(p *Page, namespace string) (texts []string) {
	if p.Shows == nil {
		return nil
	}
	for _, of := range h.Conditions {
		if p.Shows(of.Kind) && (namespace == "" || of.Namespace == "" || of.Namespace == namespace) {
			texts = append(texts, of.Text+" The page shows the last known state.")
		}
	}
	return texts
}
