package watch

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// row is an object in a table.
type row struct{ namespace, name, state, age, version string }

func rowOf(r *cache.Record, now time.Time) row {
	out := row{namespace: r.Namespace(), name: r.Name(), version: r.Version(), state: "-", age: "-"}
	if u, err := store.As[unstructured.Unstructured](r); err == nil {
		out.state = stateOf(u.Object)
		if t := u.GetCreationTimestamp(); !t.IsZero() {
			out.age = duration.HumanDuration(now.Sub(t.Time))
		}
	}
	if r.Deleting() {
		out.state = "Terminating"
	}
	return out
}

// stateOf returns the state of an object of any kind in one word: its phase, or its condition Ready or Available.
func stateOf(object map[string]any) string {
	if phase, ok, _ := unstructured.NestedString(object, "status", "phase"); ok && phase != "" {
		return phase
	}
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, want := range []string{"Ready", "Available", "Established"} {
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == want {
				if m["status"] == "True" {
					return want
				}
				return "Not" + want
			}
		}
	}
	return "-"
}

// table writes one line per event, for output that cannot be rewritten. Statuses go to stderr.
type table struct {
	namespaced bool
	log        io.Writer
	headed     bool
}

func newTable(r resource, log io.Writer) *table { return &table{namespaced: r.namespaced, log: log} }

func (t *table) event(w io.Writer, e store.Event) error {
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync, store.Left:
	case store.Synced:
		_, err := fmt.Fprintf(t.log, "synced: %d objects at version %s\n", e.Count, e.Version)
		return err
	case store.Epoch:
		_, err := fmt.Fprintf(t.log, "the history of the server was rolled back: %s\n", e.Reason)
		return err
	case store.QuarantinedObject:
		_, err := fmt.Fprintf(t.log, "quarantined: %s at version %s: %v\n", e.Key, e.Version, e.Err)
		return err
	}
	if !t.headed {
		t.headed = true
		if err := t.line(w, "EVENT", row{"NAMESPACE", "NAME", "STATE", "AGE", "VERSION"}); err != nil {
			return err
		}
	}
	return t.line(w, e.Type.String(), rowOf(e.Object, time.Now()))
}

func (t *table) line(w io.Writer, event string, r row) error {
	if t.namespaced {
		event = fmt.Sprintf("%-9s %-20s", event, r.namespace)
	} else {
		event = fmt.Sprintf("%-9s", event)
	}
	_, err := fmt.Fprintf(w, "%s %-40s %-14s %-7s %s\n", event, r.name, r.state, r.age, r.version)
	return err
}

func (t *table) status(_ io.Writer, s source.Status) error { return logStatus(t.log, s) }
func (t *table) stats(_ io.Writer, s watchStats) error     { return logStats(t.log, s) }
func (t *table) share(_ io.Writer, _ string, held shard.Set) error {
	return logShare(t.log, held)
}
func (t *table) settle(io.Writer) error { return nil }

// screen is a table on a terminal. It is redrawn after changes, with a status line below.
type screen struct {
	resource      resource
	width, height int
	rows          map[cache.Key]*cache.Record
	fresh         map[cache.Key]bool // changed since the last drawing
	statuses      map[string]source.Status
	synced        bool
	note          string
	drawn         int // lines of the last drawing
}

func newScreen(r resource, width, height int) *screen {
	return &screen{
		resource: r, width: width, height: height, rows: make(map[cache.Key]*cache.Record),
		fresh: make(map[cache.Key]bool), statuses: make(map[string]source.Status),
	}
}

func (s *screen) event(_ io.Writer, e store.Event) error {
	switch e.Type {
	case store.Added, store.Modified, store.Sync:
		s.rows[e.Key] = e.Object
		s.fresh[e.Key] = s.synced && e.Type != store.Sync
	case store.Deleted, store.Left:
		delete(s.rows, e.Key)
		delete(s.fresh, e.Key)
	case store.Synced:
		s.synced = true
	case store.Epoch:
		s.note = "history was rolled back: " + e.Reason
	case store.QuarantinedObject:
		s.note = fmt.Sprintf("quarantined: %s: %v", e.Key, e.Err)
	}
	return nil
}

func (s *screen) status(_ io.Writer, st source.Status) error {
	s.statuses[st.Namespace] = st
	return nil
}

func (s *screen) share(_ io.Writer, _ string, held shard.Set) error {
	s.note = shareLine(held)
	return nil
}

func (s *screen) stats(w io.Writer, st watchStats) error { return logStats(w, st) }

// settle redraws the table. If there are more objects than lines, it shows those that changed last.
func (s *screen) settle(w io.Writer) error {
	keys := make([]cache.Key, 0, len(s.rows))
	for k := range s.rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b cache.Key) int { return strings.Compare(a.String(), b.String()) })
	room := max(1, s.height-3)
	hidden := 0
	if len(keys) > room {
		changed := slices.DeleteFunc(slices.Clone(keys), func(k cache.Key) bool { return !s.fresh[k] })
		others := slices.DeleteFunc(slices.Clone(keys), func(k cache.Key) bool { return s.fresh[k] })
		hidden = len(keys) - room
		keys = append(changed, others...)[:room]
	}
	var body bytes.Buffer
	tw := tabwriter.NewWriter(&body, 0, 8, 2, ' ', 0)
	now := time.Now()
	_, _ = fmt.Fprintln(tw, s.cells(row{"NAMESPACE", "NAME", "STATE", "AGE", "VERSION"})) // a buffer cannot fail
	for _, k := range keys {
		_, _ = fmt.Fprintln(tw, s.cells(rowOf(s.rows[k], now)))
	}
	_ = tw.Flush()
	lines := strings.Split(strings.TrimRight(body.String(), "\n"), "\n")
	lines = append(lines, s.footer(hidden))
	clear(s.fresh)
	var picture strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&picture, "\x1b[%dA", s.drawn)
	}
	for _, line := range lines {
		picture.WriteString("\x1b[2K" + cli.Cut(line, s.width) + "\n")
	}
	for range s.drawn - len(lines) {
		picture.WriteString("\x1b[2K\n") // clear the rest of a longer drawing
	}
	s.drawn = max(s.drawn, len(lines))
	_, err := io.WriteString(w, picture.String())
	return err
}

func (s *screen) cells(r row) string {
	if s.resource.namespaced {
		return strings.Join([]string{r.namespace, r.name, r.state, r.age, r.version}, "\t")
	}
	return strings.Join([]string{r.name, r.state, r.age, r.version}, "\t")
}

func (s *screen) footer(hidden int) string {
	parts := []string{fmt.Sprintf("%d objects", len(s.rows))}
	if hidden > 0 {
		parts[0] += fmt.Sprintf(" (%d not shown)", hidden)
	}
	for _, ns := range slices.Sorted(maps.Keys(s.statuses)) {
		parts = append(parts, statusLine(s.statuses[ns]))
	}
	if s.note != "" {
		parts = append(parts, s.note)
	}
	return "-- " + strings.Join(parts, " | ")
}
