package group

import "github.com/prometheus/client_golang/prometheus"

// Collector returns a collector for the metrics of this member.
func (g *Group) Collector() prometheus.Collector { return collector{g} }

type collector struct{ g *Group }

func (c collector) metrics(s Status, counts state) []prometheus.Metric {
	labels := prometheus.Labels{"group": c.g.opt.Namespace + "/" + c.g.opt.Name}
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
	for _, m := range c.metrics(Status{}, state{}) {
		ch <- m.Desc()
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	status := c.g.Status()
	c.g.mu.Lock()
	s := c.g.state
	c.g.mu.Unlock()
	for _, m := range c.metrics(status, s) {
		ch <- m
	}
}
