package group

import "github.com/prometheus/client_golang/prometheus"

// Collector returns a collector for the metrics of this member.
func (g *Group) Collector() prometheus.Collector { return collector{g} }

type collector struct{ g *Group }

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Status, state) float64
}

func metrics(group string) []metric {
	define := func(name, help string, kind prometheus.ValueType, value func(Status, state) float64) metric {
		labels := prometheus.Labels{"group": group}
		return metric{prometheus.NewDesc("fairlead_shard_"+name, help, nil, labels), kind, value}
	}
	const gauge, count = prometheus.GaugeValue, prometheus.CounterValue
	return []metric{
		define("slots_held", "Slots that this member holds.", gauge,
			func(s Status, _ state) float64 { return float64(s.Held.Len()) }),
		define("members", "Members of the group.", gauge,
			func(s Status, _ state) float64 { return float64(len(s.Group.Members)) }),
		define("slots_gained_total", "Slots that this member has gained.", count,
			func(_ Status, s state) float64 { return float64(s.gained) }),
		define("slots_released_total", "Slots that this member has handed over.", count,
			func(_ Status, s state) float64 { return float64(s.moved) }),
		define("slots_moving", "Slots of the group that are moving to another member.", gauge,
			func(s Status, _ state) float64 { return float64(len(s.Group.Moving)) }),
		define("lost_terms_total", "Number of times this member has lost all its slots.", count,
			func(_ Status, s state) float64 { return float64(s.lost) }),
		define("renewal_age_seconds", "Time since the last renewal was begun; -1 without a Lease.", gauge,
			func(s Status, _ state) float64 {
				if s.Age < 0 {
					return -1
				}
				return s.Age.Seconds()
			}),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics(c.g.opt.Namespace + "/" + c.g.opt.Name) {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	status := c.g.Status()
	c.g.mu.Lock()
	s := c.g.state
	c.g.mu.Unlock()
	for _, m := range metrics(status.Group.Group) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(status, s))
	}
}
