package console

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/source"
)

// staleAfter is the age from which all pages show the age of their content. An idle source is confirmed every minute.
const staleAfter = 2 * time.Minute

// healthOf returns the health of a program. A page calls it once, so that all its parts agree.
func healthOf(s inspect.Runtime, sections []*pages.Contents) *pages.Health {
	h := &pages.Health{Problems: s.Problems}
	var oldest time.Duration
	for _, src := range s.Sources {
		if !src.Running {
			continue
		}
		for _, st := range src.Status {
			if st.Refused && st.Phase == string(source.Degraded) && st.Silence <= staleAfter {
				h.Conditions = append(h.Conditions, conditionOf(src.Cluster, src.Kind.GroupKind(), st))
				continue
			}
			if st.Silence > oldest && (st.Silence > staleAfter || st.Phase == string(source.Degraded)) {
				oldest = st.Silence
				h.Stale = "The API server has not confirmed this state for " + pages.Human(oldest.Round(time.Second)) +
					" (" + st.Reason + ")."
			}
		}
	}
	slices.SortStableFunc(h.Conditions, func(a, b pages.Condition) int { return strings.Compare(a.Text, b.Text) })
	h.Conditions = slices.CompactFunc(h.Conditions, func(a, b pages.Condition) bool { return a.Text == b.Text })
	for _, ctl := range s.Controllers {
		if ctl.BlockedSince != nil {
			h.Blocked = append(h.Blocked, pages.Blocked{
				Name: strings.Join(strings.Fields("controller "+ctl.Cluster+" "+ctl.Name), " "), At: "objects", Page: "controllers",
				Since: *ctl.BlockedSince,
			})
		}
	}
	if at := s.FlowsBlockedSince; at != nil {
		h.Blocked = append(h.Blocked, pages.EngineBlocked("engine of flows", *at))
	}
	for _, section := range sections {
		if section.Blocked != nil {
			h.Blocked = append(h.Blocked, section.Blocked()...)
		}
	}
	return h
}

// conditionOf returns the condition of a refused source. The server's message, which contains the name of the program's
// account, is only on the page of the sources.
func conditionOf(cluster string, of schema.GroupKind, st inspect.Scope) pages.Condition {
	kind := of.String()
	if cluster != "" {
		kind += " of cluster " + cluster
	}
	if st.Namespace != "" {
		kind += " in namespace " + st.Namespace
	}
	c := pages.Condition{Namespace: st.Namespace, Kind: of, Text: "The API server does not serve " + kind + "."}
	if st.Reason == string(source.ReasonForbidden) {
		c.Text = "This program may not list or watch " + kind + "."
	}
	return c
}
