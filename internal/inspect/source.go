package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Sources lists the declared sources and observers with their state.
type Sources struct {
	Sources []Source `json:"sources"`
	// Unmatched are the observers whose selector has no source.
	Unmatched []Observer `json:"unmatched,omitempty"`
}

// Source describes one source and its observers.
type Source struct {
	Cluster  string   `json:"cluster,omitempty"`
	Selector []string `json:"selector"`
	Type     string   `json:"type,omitempty"`
	// At is the file:line of the declaration. It is empty for stores of reconcilers and clients.
	At string `json:"at"`
	// From names the input selectors of a derived source.
	From []string `json:"from,omitempty"`
	// Running is false for a source without an observer, for a filter, and before the start.
	Running bool   `json:"running"`
	Error   string `json:"error,omitempty"`
	Objects int    `json:"objects"`
	// Kind is the watched kind. It is empty for a derived source, and while the kind is unknown.
	Kind schema.GroupVersionKind `json:"kind,omitzero"`
	// Memory is the memory of the source's store.
	Memory store.MemoryStats `json:"memory"`
	// Quarantined are the objects that cannot be read, the oldest first, 100 at most. JSON omits them, since
	// /debug/sources does not check a permission to read these objects.
	Quarantined []Quarantined `json:"-"`
	Status      []Scope       `json:"status,omitempty"`
	Observers   []Observer    `json:"observers"`
}

// Quarantined describes an object that could not be stored or decoded.
type Quarantined struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Error     string    `json:"error"`
	Since     time.Time `json:"since"` // of this version
}

// Scope is the state of one scope of a source.
type Scope struct {
	Namespace string `json:"namespace,omitempty"`
	// Phase is Connecting, Listing, Watching, Degraded or Stopped.
	Phase string `json:"phase"`
	// Reason is a one-word reason for the phase, such as Watching, Disconnected, Expired, Forbidden or NotFound.
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	Synced  bool      `json:"synced"`
	// Staleness is the time since the known state was last confirmed, in nanoseconds. If it never was, Staleness counts
	// from the start of the source.
	Staleness time.Duration `json:"staleness"`
	// Silence is the time since the server last confirmed or refused the known state, in nanoseconds.
	Silence time.Duration `json:"silence"`
	// Refused is set while the server does not serve the resource or forbids it.
	Refused  bool            `json:"refused,omitempty"`
	Counters source.Counters `json:"counters"`
}

// Observer describes one observer.
type Observer struct {
	Cluster  string   `json:"cluster,omitempty"`
	Selector []string `json:"selector"`
	Name     string   `json:"name"`
	At       string   `json:"at"`
	Type     string   `json:"type"`
	Mask     string   `json:"mask"`
	Delivery string   `json:"delivery"`
	Failure  string   `json:"failure"`
	Synced   bool     `json:"synced"`
	// Stopped is the error for which the failure policy stopped the observer.
	Stopped string `json:"stopped,omitempty"`
	Stats   Stats  `json:"stats"`
	// BehindSince is a time at which the oldest unhandled event already existed; zero if all events are handled. For an
	// Async observer an event counts as handled once a call for it has begun, or while another event of its key is in
	// progress.
	BehindSince time.Time `json:"behindSince,omitzero"`
}

// Stats are the counts of one observer since its declaration.
type Stats struct {
	Handled uint64        `json:"handled"` // events handled, or excluded by its mask
	Failed  uint64        `json:"failed"`  // events given up
	Retried uint64        `json:"retried"` // failed calls that were repeated
	Busy    time.Duration `json:"busy"`    // time spent in the observer, in nanoseconds
	Lag     int           `json:"lag"`     // events, or keys, not delivered yet
}

// Add adds the counts of another observer.
func (s *Stats) Add(o Stats) {
	s.Handled += o.Handled
	s.Failed += o.Failed
	s.Retried += o.Retried
	s.Busy += o.Busy
	s.Lag += o.Lag
}

// String formats the description as text for people.
func (d Sources) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, s := range d.Sources {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", named(s.Cluster, s.Selector), s.Type,
			cmp.Or(s.At, "of reconcilers or clients"), s.state())
		for _, o := range s.Observers {
			_, _ = fmt.Fprintf(w, "  %s\n", o.line())
		}
	}
	for _, o := range d.Unmatched {
		_, _ = fmt.Fprintf(w, "%s\t-\t-\tno source\n  %s\n", named(o.Cluster, o.Selector), o.line())
	}
	_ = w.Flush() // a strings.Builder cannot fail
	return b.String()
}

func named(cluster string, selector []string) string {
	name := strings.Join(selector, " + ")
	if cluster != "" {
		name = cluster + ": " + name
	}
	return name
}

func (s Source) state() string {
	var parts []string
	if len(s.From) > 0 {
		parts = append(parts, "from "+strings.Join(s.From, ", "))
	}
	switch {
	case s.Error != "":
		parts = append(parts, "failed: "+s.Error)
	case s.Running:
		parts = append(parts, fmt.Sprintf("%d objects", s.Objects))
	case len(s.Observers) == 0 && len(s.From) == 0:
		parts = append(parts, "not listed: it has no observer")
	case len(s.From) == 0:
		parts = append(parts, "not started")
	}
	for _, st := range s.Status {
		words := []string{st.Namespace, st.Phase}
		if st.Phase == string(source.Degraded) {
			words = append(words, fmt.Sprintf("%s for %v: %s", st.Reason, st.Staleness.Round(time.Second), st.Message))
		}
		parts = append(parts, strings.TrimSpace(strings.Join(words, " ")))
	}
	return strings.Join(parts, ", ")
}

func (o Observer) line() string {
	line := fmt.Sprintf("<- %s\t%s\t%s\t%s, %s", o.Name, o.Type, o.At, o.Mask, o.Delivery)
	switch {
	case o.Stopped != "":
		line += ", stopped: " + o.Stopped
	case !o.Synced:
		line += ", not synced"
	}
	if o.Stats.Lag > 0 || o.Stats.Failed > 0 {
		line += fmt.Sprintf(", %d behind, %d given up", o.Stats.Lag, o.Stats.Failed)
	}
	return line
}
