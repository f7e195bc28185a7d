package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Stats are the statistics of a store.
type Stats struct {
	Objects     int
	Applied     int64 // changes from watches
	Suppressed  int64 // older or replayed changes
	Commits     int64 // applied lists
	Quarantined int64 // objects that could not be kept, or not be decoded
	Subscribers int
	MaxLag      int // of the slowest subscriber, in changes
	Mutations   int64
	Overlay     OverlayStats
	Memory      MemoryStats
}

// MemoryStats is the memory of the encoded objects of a store. Headers and indexes are on the Go heap, and not
// included.
type MemoryStats struct {
	Live         int64 `json:"live"`   // bytes of encoded objects in the arena, outside of the Go heap
	Mapped       int64 `json:"mapped"` // bytes of the arena, free slots included
	Dictionaries int   `json:"dictionaries"`
	Unpacked     int64 `json:"unpacked"` // bytes of new objects that wait to be packed
}

// Collector returns a collector for the metrics of the stores that list returns, such as those of Cache.Stores. The
// label "selector" distinguishes stores of one resource.
func Collector(list func() []*Store) prometheus.Collector { return &collector{list} }

type collector struct{ list func() []*Store }

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Stats) float64
}

func newMetric(name, help string, kind prometheus.ValueType, value func(Stats) float64) metric {
	return metric{prometheus.NewDesc("fairlead_store_"+name, help, []string{"group", "version", "resource", "selector"},
		nil), kind, value}
}

func metrics() []metric {
	const gauge, count = prometheus.GaugeValue, prometheus.CounterValue
	return []metric{
		newMetric("objects", "Objects in the store.", gauge, func(s Stats) float64 { return float64(s.Objects) }),
		newMetric("changes_total", "Changes applied.", count, func(s Stats) float64 { return float64(s.Applied) }),
		newMetric("suppressed_total", "Changes that were older than the stored state.", count,
			func(s Stats) float64 { return float64(s.Suppressed) }),
		newMetric("lists_total", "Lists applied.", count, func(s Stats) float64 { return float64(s.Commits) }),
		newMetric("quarantined_total", "Objects that could not be stored or decoded.", count,
			func(s Stats) float64 { return float64(s.Quarantined) }),
		newMetric("subscribers", "Subscribers.", gauge, func(s Stats) float64 { return float64(s.Subscribers) }),
		newMetric("subscriber_lag", "Changes that the slowest subscriber has not received yet.", gauge,
			func(s Stats) float64 { return float64(s.MaxLag) }),
		newMetric("mutations_total", "Shared objects that a reader changed.", count,
			func(s Stats) float64 { return float64(s.Mutations) }),
		newMetric("overlay_entries", "Own writes that the watch has not confirmed yet.", gauge,
			func(s Stats) float64 { return float64(s.Overlay.Entries) }),
		newMetric("overlay_oldest_seconds", "Age of the oldest unconfirmed own write.", gauge,
			func(s Stats) float64 { return s.Overlay.Oldest.Seconds() }),
		newMetric("overlay_overdue", "Own writes that stay unconfirmed for longer than the limit.", gauge,
			func(s Stats) float64 { return float64(len(s.Overlay.Overdue)) }),
		newMetric("packed_bytes", "Bytes of encoded objects outside of the Go heap.", gauge,
			func(s Stats) float64 { return float64(s.Memory.Live) }),
		newMetric("mapped_bytes", "Bytes mapped for encoded objects.", gauge,
			func(s Stats) float64 { return float64(s.Memory.Mapped) }),
	}
}

// scopeMetric is a metric of one namespace, or of all.
type scopeMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *source.Status, now time.Time) float64
}

func scopeMetrics() []scopeMetric {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_store_"+name, help,
			[]string{"group", "version", "resource", "selector", "namespace"}, nil)
	}
	return []scopeMetric{
		{
			desc("staleness_seconds", "Time since the stored state was last confirmed."), prometheus.GaugeValue,
			func(st *source.Status, now time.Time) float64 { return st.Staleness(now).Seconds() },
		},
		{
			desc("list_errors_total", "Lists that failed or were refused as implausible."), prometheus.CounterValue,
			func(st *source.Status, _ time.Time) float64 { return float64(st.Counters.ListErrors) },
		},
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		out <- m.desc
	}
	for _, m := range scopeMetrics() {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	all, scopes, now := metrics(), scopeMetrics(), time.Now()
	for _, s := range c.list() {
		stats, r := s.Stats(), s.opt.Resource
		labels := []string{r.Group, r.Version, r.Resource, metricLabel(&s.opt, s.scope.Load())}
		for _, m := range all {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(stats), labels...)
		}
		for _, st := range s.Statuses() {
			for _, m := range scopes {
				out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st, now), append(labels[:4:4], st.Namespace)...)
			}
		}
	}
}

// metricLabel returns the value of the label "selector". scope replaces Options.Scope, unless it is nil.
func metricLabel(opt *Options, scope *string) string {
	o := Options{
		LabelSelector: opt.LabelSelector, FieldSelector: opt.FieldSelector,
		Shard: opt.Shard, Scope: opt.Scope,
	}
	if scope != nil {
		o.Scope = *scope
	}
	return o.distinction()
}
