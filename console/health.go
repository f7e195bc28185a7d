package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// staleAfter is the age from which all pages show the age of their content. An idle source is confirmed every minute.
const staleAfter = 2 * time.Minute

// health is the state of the program. The banner of all pages and the overview show the same state.
type health struct {
	Stale      string // time since the API server's last confirmation; empty if short
	Problems   []string
	Blocked    []blockedRow
	Conditions []condition
}

// OK reports whether there are no problems at all.
func (h *health) OK() bool { return h.Limited() && len(h.Conditions) == 0 }

// Limited reports whether there are no problems except resources that the API server refuses.
func (h *health) Limited() bool { return h.Stale == "" && len(h.Problems) == 0 && len(h.Blocked) == 0 }

// blockedRow is a controller or an engine whose workers are blocked.
type blockedRow struct {
	Name  string // such as "controller maps"
	At    string // the things that the workers process: objects or steps
	Page  string // the page with details, without "/console/"
	Since time.Time
}

// pageFlows is the page of the fibers.
const pageFlows = "flows"

// Title returns the name of the page.
func (b blockedRow) Title() string { return strings.ToUpper(b.Page[:1]) + b.Page[1:] }

// engineBlocked returns the row of an engine.
func engineBlocked(name string, since time.Time) blockedRow {
	return blockedRow{Name: name, At: "steps", Page: pageFlows, Since: since}
}

// condition is a resource that the API server does not serve, or that it forbids the program to read.
type condition struct {
	Cluster, Namespace string
	Kind               schema.GroupKind
	Reason             string
	Since              time.Time
}

// Text returns a text for all readers of a page of the kind. The server's message, which contains the name of the
// program's account, is only on the page of the sources.
func (c condition) Text() string {
	kind := c.Kind.String()
	if c.Cluster != "" {
		kind += " of cluster " + c.Cluster
	}
	if c.Namespace != "" {
		kind += " in namespace " + c.Namespace
	}
	if c.Reason == string(source.ReasonForbidden) {
		return "This program may not list or watch " + kind + "."
	}
	return "The API server does not serve " + kind + "."
}

// health returns the state of the program. A page calls it once, so that all its parts agree.
func (c *console) health() *health {
	h := healthOf(c.status())
	if c.Operations != nil && c.Operations.Executor != nil {
		if since, blocked := c.Operations.Executor.Flows().BlockedSince(); blocked {
			h.Blocked = append(h.Blocked, engineBlocked("engine of operations", since))
		}
	}
	return h
}

func healthOf(s inspect.Runtime) *health {
	h := &health{Problems: s.Problems}
	var oldest time.Duration
	for _, src := range s.Sources {
		if !src.Running {
			continue
		}
		for _, st := range src.Status {
			if st.Refused && st.Phase == string(source.Degraded) && st.Silence <= staleAfter {
				h.Conditions = append(h.Conditions, condition{
					src.Cluster, st.Namespace, src.Kind.GroupKind(), st.Reason, st.Since,
				})
				continue
			}
			if st.Silence > oldest && (st.Silence > staleAfter || st.Phase == string(source.Degraded)) {
				oldest = st.Silence
				h.Stale = "The API server has not confirmed what is shown here for " + human(oldest.Round(time.Second)) +
					" (" + st.Reason + ")."
			}
		}
	}
	slices.SortFunc(h.Conditions, func(a, b condition) int {
		return strings.Compare(a.Text()+a.Reason, b.Text()+b.Reason)
	})
	h.Conditions = slices.CompactFunc(h.Conditions, func(a, b condition) bool { return a.Text() == b.Text() })
	for _, ctl := range s.Controllers {
		if ctl.BlockedSince != nil {
			h.Blocked = append(h.Blocked, blockedRow{
				Name: strings.Join(strings.Fields("controller "+ctl.Cluster+" "+ctl.Name), " "), At: "objects", Page: "controllers",
				Since: *ctl.BlockedSince,
			})
		}
	}
	if at := s.FlowsBlockedSince; at != nil {
		h.Blocked = append(h.Blocked, engineBlocked("engine of flows", *at))
	}
	return h
}

// shows reports whether a page shows a kind. Nil: it shows none.
type shows func(c *console, kind schema.GroupKind) bool

func showsAll(*console, schema.GroupKind) bool { return true }

func showsKind(name string) shows {
	return func(_ *console, kind schema.GroupKind) bool {
		return kind == schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: name}
	}
}

// showsControlled reports whether a controller handles the kind.
func showsControlled(c *console, kind schema.GroupKind) bool {
	for _, ctl := range c.status().Controllers {
		if ctl.Of.Group == kind.Group && ctl.Of.Kind == kind.Kind {
			return true
		}
	}
	return false
}

// of returns the conditions that affect a page: those of its kinds, in its namespace if it has one.
func (h *health) of(c *console, v view, r *http.Request) (texts []string) {
	if v.shows == nil {
		return nil
	}
	namespace := r.PathValue("namespace")
	if namespace == "" {
		namespace = r.URL.Query().Get("namespace")
	}
	for _, of := range h.Conditions {
		if v.shows(c, of.Kind) && (namespace == "" || of.Namespace == "" || of.Namespace == namespace) {
			texts = append(texts, of.Text()+" What is shown of it is as it was before.")
		}
	}
	return texts
}
