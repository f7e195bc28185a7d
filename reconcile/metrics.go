package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// metrics are the metrics of one controller.
type metrics struct {
	c         *Controller
	runs      *prometheus.CounterVec
	seconds   prometheus.Histogram
	stuck     prometheus.Counter
	panics    prometheus.Counter
	mapErrors *prometheus.CounterVec
	queue     *prometheus.Desc
	oldest    *prometheus.Desc
}

func newMetrics(c *Controller) *metrics {
	own := prometheus.Labels{"controller": c.name}
	return &metrics{
		c: c,
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_reconcile_total", Help: "Reconciliations, by result.", ConstLabels: own,
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_reconcile_duration_seconds", Help: "Duration of one reconciliation.", ConstLabels: own,
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		stuck: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_reconcile_stuck_total", Help: "Reports of a reconciliation that does not return.", ConstLabels: own,
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_reconcile_panics_total", Help: "Reconciliations that panicked.", ConstLabels: own,
		}),
		mapErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_reconcile_map_errors_total", Help: "Events that could not be mapped to objects.",
			ConstLabels: own,
		}, []string{"watch"}),
		queue: prometheus.NewDesc("fairlead_reconcile_objects", "Objects, by state.", []string{"state"}, own),
		oldest: prometheus.NewDesc("fairlead_reconcile_oldest_seconds",
			"Longest time that an object has been ready, running or failing.",
			[]string{"state"}, own),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.runs.Describe(ch)
	m.seconds.Describe(ch)
	m.stuck.Describe(ch)
	m.panics.Describe(ch)
	m.mapErrors.Describe(ch)
	ch <- m.queue
	ch <- m.oldest
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.runs.Collect(ch)
	m.seconds.Collect(ch)
	m.stuck.Collect(ch)
	m.panics.Collect(ch)
	m.mapErrors.Collect(ch)
	s := m.c.counts()
	states := map[string]int{"ready": s.Ready, "waiting": s.Waiting, "running": s.Running, "failed": s.Failed}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(m.queue, prometheus.GaugeValue, float64(n), state)
	}
	for state, age := range m.c.oldest() {
		ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, age.Seconds(), state)
	}
}

// counts returns the numbers of objects by state.
func (c *Controller) counts() inspect.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := inspect.Counts{Ready: c.q.ready, Running: c.q.running, Waiting: len(c.q.times)}
	for _, it := range c.q.items {
		if it.fail != nil {
			s.Failed++
		}
	}
	return s
}

// oldest returns, for each state, the longest time that an object has been in it; 0 if there is no such object.
func (c *Controller) oldest() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	ages := map[string]time.Duration{"ready": 0, "running": 0, "failed": 0}
	note := func(state string, since time.Time) { ages[state] = max(ages[state], now.Sub(since)) }
	for _, it := range c.q.items {
		switch {
		case it.state == ready:
			note("ready", it.came)
		case it.current != nil:
			note("running", it.current.begun)
		}
		if it.fail != nil {
			note("failed", it.fail.since)
		}
	}
	return ages
}
