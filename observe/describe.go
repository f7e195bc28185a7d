package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/source"
)

const (
	maxQuarantinedShown = 100
	maxErrorShown       = 1 << 10 // bytes
)

// describeStore fills in the objects of a store and its quarantined objects.
func describeStore(s *inspect.Source, st *cache.Store) {
	s.Objects, s.Memory = st.Len(), st.MemoryStats()
	all := append(st.Quarantined(), st.Undecoded()...)
	slices.SortFunc(all, func(a, b source.Quarantined) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Key(), b.Key()))
	})
	for _, q := range all[:min(len(all), maxQuarantinedShown)] {
		text := q.Err.Error()
		if len(text) > maxErrorShown {
			text = strings.ToValidUTF8(text[:maxErrorShown], "") + "…"
		}
		s.Quarantined = append(s.Quarantined, inspect.Quarantined{
			Namespace: q.Namespace, Name: q.Name, Version: q.Version, Error: text, Since: q.At,
		})
	}
}

// snapshot is the state of the declarations at one moment.
type snapshot struct {
	sources   []originSnapshot
	unmatched []observerSnapshot // without a source
}

// originSnapshot is the state of a source. Only the constant fields of declared may be read.
type originSnapshot struct {
	declared  *Origin
	state     openState // of its twin, if only that is open
	observers []observerSnapshot
}

// observerSnapshot is the state of an observer. Only its constant fields and counters may be read.
type observerSnapshot struct {
	declared *Observer
	delivery *delivery
	failure  error
}

// snapshotOf requires the lock of the registry.
func snapshotOf(d *declarations) (s snapshot) {
	of := func(by *Observer) observerSnapshot { return observerSnapshot{by, by.delivery, by.failure} }
	for _, o := range d.origins {
		source := originSnapshot{declared: o, state: o.openState}
		if o.twin != nil && !o.active() {
			source.state = o.twin.openState
		}
		for _, by := range d.observers {
			if by.selector == o.selector {
				source.observers = append(source.observers, of(by))
			}
		}
		s.sources = append(s.sources, source)
	}
	for _, by := range d.observers {
		if d.origin(by.selector) == nil {
			s.unmatched = append(s.unmatched, of(by))
		}
	}
	return s
}

// describe describes the declarations of a cluster.
func (s snapshot) describe(cluster string) inspect.Sources {
	now := time.Now()
	d := inspect.Sources{Sources: []inspect.Source{}}
	for _, o := range s.sources {
		d.Sources = append(d.Sources, o.describe(cluster, now))
	}
	for _, by := range s.unmatched {
		d.Unmatched = append(d.Unmatched, by.describe(cluster))
	}
	return d
}

func (s originSnapshot) describe(cluster string, now time.Time) inspect.Source {
	o := s.declared
	d := inspect.Source{Cluster: cluster, Selector: o.selector.names(), At: o.place, Observers: []inspect.Observer{}}
	for _, by := range s.observers {
		d.Observers = append(d.Observers, by.describe(cluster))
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
	if s.state.err != nil {
		d.Error = s.state.err.Error()
	}
	f := s.state.feed
	if f == nil {
		return d
	}
	d.Running = true
	describeStore(&d, f.store)
	if f.handle == nil {
		return d // the status is that of its inputs
	}
	d.Kind = f.store.Options().Kind
	for _, st := range f.store.Statuses() {
		d.Status = append(d.Status, statusOf(st, s.state.since, now))
	}
	return d
}

// statusOf describes a scope. A scope that was never confirmed is as old as began, unless began is zero.
func statusOf(st source.Status, began, now time.Time) inspect.Scope {
	d := inspect.Scope{
		Namespace: st.Namespace, Phase: string(st.Phase), Reason: string(st.Reason), Message: st.Message, Since: st.Since,
		Synced: st.Synced, Staleness: st.Staleness(now), Silence: st.Silence(now), Refused: st.Refused(),
		Counters: st.Counters,
	}
	if st.LastContact.IsZero() && !began.IsZero() {
		if d.Staleness = now.Sub(began); !d.Refused {
			d.Silence = d.Staleness
		}
	}
	return d
}

// describeOthers describes the stores that are not in own. The selector is the resource and its selection, and At is
// empty. A scope that was never confirmed is as stale as its phase is old.
func describeOthers(cluster string, stores []*cache.Store, own map[*cache.Store]bool) []inspect.Source {
	now := time.Now()
	var out []inspect.Source
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
		d := inspect.Source{
			Cluster: cluster, Selector: []string{strings.Join(words, " ")}, Type: typeName(opt.Kind), Running: true,
			Kind: opt.Kind, Observers: []inspect.Observer{},
		}
		describeStore(&d, st)
		for _, s := range st.Statuses() {
			d.Status = append(d.Status, statusOf(s, s.Since, now))
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b inspect.Source) int { return strings.Compare(a.Selector[0], b.Selector[0]) })
	return out
}

func typeName(kind schema.GroupVersionKind) string {
	return kind.Kind + "." + kind.GroupVersion().String()
}

func (s observerSnapshot) describe(cluster string) inspect.Observer {
	o := s.declared
	d := inspect.Observer{
		Cluster: cluster, Selector: o.selector.names(), Name: o.Name(), At: o.place, Type: "any",
		Mask:     o.opts.mask.String(),
		Delivery: "sync", Failure: o.opts.failure.String(),
		Stats: inspect.Stats{
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
	if s.delivery != nil {
		d.Stats.Lag, d.BehindSince = s.delivery.lag(), s.delivery.behindSince()
	}
	if s.failure != nil {
		d.Stopped = s.failure.Error()
	}
	d.Synced = o.synced.happened()
	return d
}
