package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// metrics are the metrics of one controller. counts and ages are called on collection.
type metrics struct {
	counts    func() inspect.Counts
	ages      func() map[string]time.Duration // by state
	runs      *prometheus.CounterVec
	seconds   prometheus.Histogram
	stuck     prometheus.Counter
	panics    prometheus.Counter
	mapErrors *prometheus.CounterVec
	queue     *prometheus.Desc
	oldest    *prometheus.Desc
}

func newMetrics(controller string) *metrics {
	own := prometheus.Labels{"controller": controller}
	return &metrics{
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
	s := m.counts()
	states := map[string]int{"ready": s.Ready, "waiting": s.Waiting, "running": s.Running, "failed": s.Failed}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(m.queue, prometheus.GaugeValue, float64(n), state)
	}
	for state, age := range m.ages() {
		ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, age.Seconds(), state)
	}
}
