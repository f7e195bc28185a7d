package group

import "github.com/prometheus/client_golang/prometheus"

// collector collects the metrics of a member from its snapshots.
type collector struct{ snapshot func() snapshot }

func (c collector) metrics() []prometheus.Metric {
	snap := c.snapshot()
	s, counts := newStatus(snap), snap.known
	labels := prometheus.Labels{"group": snap.group()}
	metric := func(name, help string, kind prometheus.ValueType, value float64) prometheus.Metric {
		desc := prometheus.NewDesc("fairlead_shard_"+name, help, nil, labels)
		return prometheus.MustNewConstMetric(desc, kind, value)
	}
	const gauge, count = prometheus.GaugeValue, prometheus.CounterValue
	age := s.Age.Seconds()
	if age < 0 {
		age = -1
	}
	return []prometheus.Metric{
		metric("slots_held", "Slots that this member holds.", gauge, float64(s.Held.Len())),
		metric("members", "Members of the group.", gauge, float64(len(s.Group.Members))),
		metric("slots_gained_total", "Slots that this member has gained.", count, float64(counts.gained)),
		metric("slots_released_total", "Slots that this member has handed over.", count, float64(counts.moved)),
		metric("slots_moving", "Slots of the group that are moving to another member.", gauge,
			float64(len(s.Group.Moving))),
		metric("lost_terms_total", "Number of times this member has lost all its slots.", count, float64(counts.lost)),
		metric("renewal_age_seconds", "Time since the last renewal was begun; -1 without a Lease.", gauge, age),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics() {
		ch <- m.Desc()
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.metrics() {
		ch <- m
	}
}
