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

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

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

func (s *screen) slots(_ io.Writer, _ string, held shard.Set) error {
	s.note = slotsLine(held)
	return nil
}

func (s *screen) stats(w io.Writer, st watchStats) error { return logStats(w, st) }

// flush redraws the table. If there are more objects than lines, it shows those that changed last.
func (s *screen) flush(w io.Writer) error {
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
