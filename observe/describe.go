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
		said := q.Err.Error()
		if len(said) > maxErrorShown {
			said = strings.ToValidUTF8(said[:maxErrorShown], "") + "…"
		}
		s.Quarantined = append(s.Quarantined, inspect.Quarantined{
			Namespace: q.Namespace, Name: q.Name, Version: q.Version, Error: said, Since: q.At,
		})
	}
}

// Describe returns the declarations with their current state.
func (r *Registry) Describe() inspect.Sources {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	d := inspect.Sources{Sources: []inspect.Source{}}
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
func (o *Origin) description(now time.Time) inspect.Source {
	d := inspect.Source{
		Cluster: o.registry.opts.Cluster, Selector: o.selector.names(), At: o.place,
		Observers: []inspect.Observer{},
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
	describeStore(&d, o.feed.store)
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
func statusOf(st source.Status, began, now time.Time) inspect.Scope {
	d := inspect.Scope{
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
func (r *Registry) DescribeOthers(stores []*cache.Store) []inspect.Source {
	r.mu.Lock()
	own := map[*cache.Store]bool{}
	for o := range r.roots() {
		if o.feed != nil {
			own[o.feed.store] = true
		}
	}
	r.mu.Unlock()
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
			Cluster: r.opts.Cluster, Selector: []string{strings.Join(words, " ")}, Type: typeName(opt.Kind), Running: true,
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

// description requires the lock of the registry.
func (o *Observer) description() inspect.Observer {
	d := inspect.Observer{
		Cluster: o.registry.opts.Cluster, Selector: o.selector.names(), Name: o.Name(), At: o.place, Type: "any",
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
	if o.delivery != nil {
		d.Stats.Lag, d.BehindSince = o.delivery.lag(), o.delivery.behindSince()
	}
	if o.failure != nil {
		d.Stopped = o.failure.Error()
	}
	d.Synced = o.synced.happened()
	return d
}
