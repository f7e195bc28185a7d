package observe

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead-io/fairlead/source"
)

// Description says which selector is produced where and observed by whom.
type Description struct {
	Sources []SourceDescription `json:"sources"`
	// Unmatched are observers of a selector that has no source.
	Unmatched []ObserverDescription `json:"unmatched,omitempty"`
}

// SourceDescription is one source with its observers.
type SourceDescription struct {
	Selector []string `json:"selector"`
	Type     string   `json:"type"`
	At       string   `json:"at"`
	// Running is false for a source without an observer, and before the start.
	Running   bool                  `json:"running"`
	Error     string                `json:"error,omitempty"`
	Objects   int                   `json:"objects"`
	Status    []StatusDescription   `json:"status,omitempty"`
	Observers []ObserverDescription `json:"observers"`
}

// StatusDescription is the condition of one scope of a source.
type StatusDescription struct {
	Namespace string        `json:"namespace,omitempty"`
	Phase     source.Phase  `json:"phase"`
	Reason    source.Reason `json:"reason"`
	Message   string        `json:"message,omitempty"`
	Since     time.Time     `json:"since"`
	Staleness time.Duration `json:"staleness"`
}

// ObserverDescription is one observer.
type ObserverDescription struct {
	Selector []string `json:"selector"`
	Name     string   `json:"name"`
	At       string   `json:"at"`
	Type     string   `json:"type"`
	Mask     string   `json:"mask"`
	Delivery string   `json:"delivery"`
	Failure  string   `json:"failure"`
	Synced   bool     `json:"synced"`
	Stats    Stats    `json:"stats"`
}

// Describe returns what is declared and how it is doing now.
func (r *Registry) Describe() Description {
	r.mu.Lock()
	defer r.mu.Unlock()
	var d Description
	for _, s := range r.sources {
		sd := SourceDescription{Selector: s.selector.Names(), Type: s.object.String(), At: s.place, Observers: []ObserverDescription{}}
		if s.err != nil {
			sd.Error = s.err.Error()
		}
		if s.handle != nil {
			sd.Running = true
			sd.Objects = s.handle.Len()
			now := time.Now()
			for _, st := range s.handle.Statuses() {
				sd.Status = append(sd.Status, StatusDescription{
					Namespace: st.Namespace, Phase: st.Phase, Reason: st.Reason, Message: st.Message, Since: st.Since,
					Staleness: st.Staleness(now),
				})
			}
		}
		for _, o := range r.observers {
			if o.selector == s.selector {
				sd.Observers = append(sd.Observers, o.describe())
			}
		}
		d.Sources = append(d.Sources, sd)
	}
	for _, o := range r.observers {
		if r.source(o.selector) == nil {
			d.Unmatched = append(d.Unmatched, o.describe())
		}
	}
	return d
}

// describe is called with the lock of the registry held.
func (o *Observer) describe() ObserverDescription {
	d := ObserverDescription{
		Selector: o.selector.Names(), Name: o.Name(), At: o.place, Type: o.object.String(), Mask: o.opts.mask.String(),
		Delivery: "sync", Failure: o.opts.failure.String(),
		Stats: Stats{
			Handled: o.stats.handled.Load(), Failed: o.stats.failed.Load(), Retried: o.stats.retried.Load(),
			Busy: time.Duration(o.stats.busy.Load()),
		},
	}
	if o.opts.limit > 0 {
		d.Delivery = fmt.Sprintf("async, %d at once", o.opts.limit)
	}
	if o.delivery != nil {
		d.Stats.Lag = o.delivery.stream.Lag()
	}
	select {
	case <-o.synced:
		d.Synced = true
	default:
	}
	return d
}

// String returns the description as text, for people.
func (d Description) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, s := range d.Sources {
		state := "not started"
		switch {
		case s.Error != "":
			state = "failed: " + s.Error
		case s.Running:
			state = fmt.Sprintf("%d objects", s.Objects)
			for _, st := range s.Status {
				state += ", " + strings.TrimSpace(fmt.Sprintf("%s %s %s", st.Namespace, st.Phase, st.Message))
			}
		case len(s.Observers) == 0:
			state = "not listed: nobody observes it"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", strings.Join(s.Selector, " + "), s.Type, s.At, state)
		for _, o := range s.Observers {
			fmt.Fprintf(w, "  %s\n", o.line())
		}
	}
	for _, o := range d.Unmatched {
		fmt.Fprintf(w, "%s\t-\t-\tno source\n  %s\n", strings.Join(o.Selector, " + "), o.line())
	}
	_ = w.Flush() // a strings.Builder cannot fail
	return b.String()
}

func (o ObserverDescription) line() string {
	line := fmt.Sprintf("<- %s\t%s\t%s, %s\t%s", o.Name, o.Type, o.Mask, o.Delivery, o.At)
	if o.Stats.Lag > 0 || o.Stats.Failed > 0 {
		line += fmt.Sprintf(", %d behind, %d given up", o.Stats.Lag, o.Stats.Failed)
	}
	return line
}
