package watch

import (
	"fmt"
	"io"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// format writes one output format. Calls are not concurrent.
type format interface {
	event(w io.Writer, e store.Event) error
	status(w io.Writer, s source.Status) error
	stats(w io.Writer, s watchStats) error
	// slots reports the slots whose objects are shown, if other processes show the others.
	slots(w io.Writer, member string, held shard.Set) error
	// flush is called when no further event is pending.
	flush(w io.Writer) error
}

// watchStats holds counts and times since the start.
type watchStats struct {
	Type           string  `json:"type"`
	Count          int     `json:"count"`
	Events         int     `json:"events"`
	ElapsedSeconds float64 `json:"elapsedSeconds"`
}

// nameFormat writes the name of each added or changed object, as kubectl does. Statuses go to stderr.
type nameFormat struct {
	resource string
	log      io.Writer
}

func (f *nameFormat) event(w io.Writer, e store.Event) error {
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync:
		_, err := fmt.Fprintf(w, "%s/%s\n", f.resource, e.Key)
		return err
	default:
		return nil
	}
}

func (f *nameFormat) status(_ io.Writer, s source.Status) error { return logStatus(f.log, s) }
func (f *nameFormat) stats(_ io.Writer, s watchStats) error     { return logStats(f.log, s) }
func (f *nameFormat) slots(_ io.Writer, _ string, held shard.Set) error {
	return logSlots(f.log, held)
}
func (f *nameFormat) flush(io.Writer) error { return nil }

// noFormat writes no objects.
type noFormat struct{ log io.Writer }

func (f *noFormat) event(io.Writer, store.Event) error        { return nil }
func (f *noFormat) status(_ io.Writer, s source.Status) error { return logStatus(f.log, s) }
func (f *noFormat) stats(_ io.Writer, s watchStats) error     { return logStats(f.log, s) }
func (f *noFormat) slots(_ io.Writer, _ string, held shard.Set) error {
	return logSlots(f.log, held)
}
func (f *noFormat) flush(io.Writer) error { return nil }

func logStatus(w io.Writer, s source.Status) error {
	_, err := fmt.Fprintln(w, statusLine(s))
	return err
}

func logSlots(w io.Writer, held shard.Set) error {
	_, err := fmt.Fprintln(w, slotsLine(held))
	return err
}

func slotsLine(held shard.Set) string {
	slots := held.String()
	if held.IsEmpty() {
		slots = "none"
	}
	return fmt.Sprintf("slots: %s of %d", slots, held.Layout().Len())
}

func logStats(w io.Writer, s watchStats) error {
	_, err := fmt.Fprintf(w, "%d objects, %d events in %.3fs\n", s.Count, s.Events, s.ElapsedSeconds)
	return err
}

func statusLine(s source.Status) string {
	line := string(s.Phase)
	if s.Namespace != "" {
		line = s.Namespace + ": " + line
	}
	if string(s.Reason) != string(s.Phase) {
		line += " (" + string(s.Reason) + ")"
	}
	if s.Message != "" {
		line += ": " + s.Message
	}
	if stale := s.Staleness(time.Now()).Round(time.Second); s.Phase == source.Degraded && stale > 0 {
		line += fmt.Sprintf("; shown is the state of %v ago", stale)
	}
	return line
}
