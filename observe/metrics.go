package observe

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/source"
)

// collector collects the metrics of a registry. It keeps no state: every scrape takes a snapshot.
type collector struct {
	sources func() inspect.Sources

	handled, failed, retried, busy, lag                                      *prometheus.Desc
	objects, running, healthy, staleness, lists, listErrors, changes, faulty *prometheus.Desc
}

func newCollector(sources func() inspect.Sources) prometheus.Collector {
	observer := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_observer_"+name, help, []string{"selector", "observer"}, nil)
	}
	scope := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_source_"+name, help, []string{"selector", "namespace"}, nil)
	}
	whole := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_source_"+name, help, []string{"selector"}, nil)
	}
	return &collector{
		sources: sources,
		handled: observer("events_total", "Events handled."),
		failed:  observer("failures_total", "Events given up."),
		retried: observer("retries_total", "Calls that failed and were retried."),
		busy:    observer("busy_seconds_total", "Time spent in the observer."),
		lag:     observer("lag", "Events, or keys, that the observer has not received yet."),
		objects: whole("objects", "Objects known."),
		running: whole("running", "Whether the source is observed and was started."),

		healthy:    scope("watching", "Whether the watch is connected."),
		staleness:  scope("staleness_seconds", "Time since the state was last confirmed."),
		lists:      scope("lists_total", "Complete lists applied."),
		listErrors: scope("list_errors_total", "Lists that failed or were refused as implausible."),
		changes:    scope("changes_total", "Changes received."),
		faulty:     scope("quarantined_total", "Objects that could not be decoded."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.handled, c.failed, c.retried, c.busy, c.lag, c.objects, c.running, c.healthy, c.staleness, c.lists, c.listErrors,
		c.changes, c.faulty,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	sources, observers := map[string]bool{}, map[[2]string]*inspect.Stats{}
	for _, s := range c.sources().Sources {
		name := strings.Join(s.Selector, "+")
		if sources[name] {
			continue // a duplicate declaration; Start reports it
		}
		sources[name] = true
		gauge(c.objects, float64(s.Objects), name)
		gauge(c.running, yes(s.Running), name)
		for _, st := range s.Status {
			gauge(c.healthy, yes(st.Phase == string(source.Watching)), name, st.Namespace)
			gauge(c.staleness, st.Staleness.Seconds(), name, st.Namespace)
			counter(c.lists, float64(st.Counters.Lists), name, st.Namespace)
			counter(c.listErrors, float64(st.Counters.ListErrors), name, st.Namespace)
			counter(c.changes, float64(st.Counters.Events), name, st.Namespace)
			counter(c.faulty, float64(st.Counters.Quarantined), name, st.Namespace)
		}
		for _, o := range s.Observers { // observers with the same name are added up
			key := [2]string{name, o.Name}
			if observers[key] == nil {
				observers[key] = &inspect.Stats{}
			}
			observers[key].Add(o.Stats)
		}
	}
	for key, s := range observers {
		counter(c.handled, float64(s.Handled), key[:]...)
		counter(c.failed, float64(s.Failed), key[:]...)
		counter(c.retried, float64(s.Retried), key[:]...)
		counter(c.busy, s.Busy.Seconds(), key[:]...)
		gauge(c.lag, float64(s.Lag), key[:]...)
	}
}
