package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Description lists the declared sources and observers with their state.
type Description struct {
	Sources []SourceDescription `json:"sources"`
	// Unmatched are the observers whose selector has no source.
	Unmatched []ObserverDescription `json:"unmatched,omitempty"`
}

// SourceDescription describes one source and its observers.
type SourceDescription struct {
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
	Memory Memory `json:"memory"`
	// Quarantined are the objects that cannot be read, the oldest first, 100 at most. JSON omits them, since
	// /debug/sources does not check a permission to read these objects.
	Quarantined []QuarantinedDescription `json:"-"`
	Status      []StatusDescription      `json:"status,omitempty"`
	Observers   []ObserverDescription    `json:"observers"`
}

// QuarantinedDescription describes an object that could not be stored or decoded.
type QuarantinedDescription struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Error     string    `json:"error"`
	Since     time.Time `json:"since"` // of this version
}

const (
	maxQuarantinedShown = 100
	maxErrorShown       = 1 << 10 // bytes
)

// holds fills in the objects of a store and its quarantined objects.
func (s *SourceDescription) holds(st *cache.Store) {
	s.Objects, s.Memory = st.Len(), st.MemoryStats()
	all := append(st.Quarantined(), st.Undecoded()...)
	slices.SortFunc(all, func(a, b source.Quarantined) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Key(), b.Key()))
	})
	for _, q := range all[:min(len(all), maxQuarantinedShown)] {
		said := q.Err.Error()
		if len(said) > maxErrorShown {
			said = strings.ToValidUTF8(said[:maxErrorShown], "") + "…"
		}
		s.Quarantined = append(s.Quarantined, QuarantinedDescription{q.Namespace, q.Name, q.Version, said, q.At})
	}
}

// Memory describes where a store's memory is. Headers and indexes are additionally on the Go heap.
type Memory = store.MemoryStats

// StatusDescription is the state of one scope of a source.
type StatusDescription struct {
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
	Refused  bool     `json:"refused,omitempty"`
	Counters Counters `json:"counters"`
}

// Counters count the lists, watches, retries, events and received data of a source's watch since its start.
type Counters = source.Counters

// ObserverDescription describes one observer.
type ObserverDescription struct {
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

// Describe returns the declarations with their current state.
func (r *Registry) Describe() Description {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	d := Description{Sources: []SourceDescription{}}
	for _, o := range r.origins {
		s := o.description(now)
		for _, by := range r.observers {
			if by.selector == o.selector {
				s.Observers = append(s.Observers, by.description())
			}
		}
		d.Sources = append(d.Sources, s)
	}
	for _, by := range r.observers {
		if r.origin(by.selector) == nil {
			d.Unmatched = append(d.Unmatched, by.description())
		}
	}
	return d
}

// description requires the lock of the registry.
func (o *Origin) description(now time.Time) SourceDescription {
	d := SourceDescription{
		Cluster: o.registry.opts.Cluster, Selector: o.selector.Names(), At: o.place,
		Observers: []ObserverDescription{},
	}
	if o.object != nil {
		d.Type = o.object.String()
	}
	if !o.kind.Empty() {
		d.Type = typeName(o.kind)
	}
	for _, in := range o.inputs {
		d.From = append(d.From, in.selector.String())
	}
	if o.twin != nil && o.feed == nil && !o.opening {
		o = o.twin
	}
	if o.err != nil {
		d.Error = o.err.Error()
	}
	if o.feed == nil {
		return d
	}
	d.Running = true
	d.holds(o.feed.store)
	if o.feed.handle == nil {
		return d // the status is that of its inputs
	}
	d.Kind = o.feed.store.Options().Kind
	for _, st := range o.feed.store.Statuses() {
		d.Status = append(d.Status, statusOf(st, o.since, now))
	}
	return d
}

// statusOf describes a scope. A scope that was never confirmed is as old as began, unless began is zero.
func statusOf(st source.Status, began, now time.Time) StatusDescription {
	d := StatusDescription{
		Namespace: st.Namespace, Phase: string(st.Phase), Reason: string(st.Reason), Message: st.Message, Since: st.Since, Synced: st.Synced,
		Staleness: st.Staleness(now), Silence: st.Silence(now), Refused: st.Refused(), Counters: st.Counters,
	}
	if st.LastContact.IsZero() && !began.IsZero() {
		if d.Staleness = now.Sub(began); !d.Refused {
			d.Silence = d.Staleness
		}
	}
	return d
}

// DescribeOthers describes stores that do not belong to sources of the registry, such as those of reconcilers and
// clients. It skips stores of its own sources. The selector is the resource and its selection, and At is empty. A scope
// that was never confirmed is as stale as its phase is old.
func (r *Registry) DescribeOthers(stores []*cache.Store) []SourceDescription {
	r.mu.Lock()
	own := map[*cache.Store]bool{}
	for o := range r.roots() {
		if o.feed != nil {
			own[o.feed.store] = true
		}
	}
	r.mu.Unlock()
	now := time.Now()
	var out []SourceDescription
	for _, st := range stores {
		if own[st] {
			continue
		}
		opt := st.Options()
		words := []string{
			opt.Resource.GroupResource().String(), opt.LabelSelector, opt.FieldSelector, opt.Shard,
			opt.Scope,
		}
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
		d := SourceDescription{
			Cluster: r.opts.Cluster, Selector: []string{strings.Join(words, " ")}, Type: typeName(opt.Kind), Running: true,
			Kind: opt.Kind, Observers: []ObserverDescription{},
		}
		d.holds(st)
		for _, s := range st.Statuses() {
			d.Status = append(d.Status, statusOf(s, s.Since, now))
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b SourceDescription) int { return strings.Compare(a.Selector[0], b.Selector[0]) })
	return out
}

func typeName(kind schema.GroupVersionKind) string {
	return kind.Kind + "." + kind.GroupVersion().String()
}

// description requires the lock of the registry.
func (o *Observer) description() ObserverDescription {
	d := ObserverDescription{
		Cluster: o.registry.opts.Cluster, Selector: o.selector.Names(), Name: o.Name(), At: o.place, Type: "any",
		Mask:     o.opts.mask.String(),
		Delivery: "sync", Failure: o.opts.failure.String(),
		Stats: Stats{
			Handled: o.stats.handled.Load(), Failed: o.stats.failed.Load(), Retried: o.stats.retried.Load(),
			Busy: time.Duration(o.stats.busy.Load()),
		},
	}
	if o.object != nil {
		d.Type = o.object.String()
	}
	if o.opts.limit > 0 {
		d.Delivery = fmt.Sprintf("async, %d at once", o.opts.limit)
	}
	if o.delivery != nil {
		d.Stats.Lag, d.BehindSince = o.delivery.lag(), o.delivery.behindSince()
	}
	if o.failure != nil {
		d.Stopped = o.failure.Error()
	}
	d.Synced = o.synced.happened()
	return d
}

// String formats the description as text for people.
func (d Description) String() string {
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

func (s SourceDescription) state() string {
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
		parts = append(parts, "not listed: nobody observes it")
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

func (o ObserverDescription) line() string {
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
