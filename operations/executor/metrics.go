package executor

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// metrics has the metrics of one Executor. It is a prometheus.Collector.
type metrics struct {
	started  *prometheus.CounterVec
	finished *prometheus.CounterVec
	duration *prometheus.HistogramVec
	near     *prometheus.CounterVec
	states   []prometheus.Collector // read at each collection
	tries    *prometheus.CounterVec
	took     *prometheus.HistogramVec

	quarantined prometheus.Counter

	mu         sync.Mutex
	categories map[string]struct{} // that have series
	coined     map[string]int      // by namespace: the number of categories that it has introduced
}

// maxCategories bounds the series, since users choose categories freely. A namespace may introduce a category while
// it has introduced fewer than are left. So a single namespace gets half of them.
const maxCategories = 200

// kind returns the labels type and category of an operation. Beyond the bound the category is "other".
func (m *metrics) kind(op *v1alpha1.Operation) []string {
	category := op.Spec.OperationCategory
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.categories[category]; !known {
		if m.coined[op.Namespace] >= maxCategories-len(m.categories) {
			category = "other"
		} else {
			m.categories[category] = struct{}{}
			m.coined[op.Namespace]++
		}
	}
	return []string{string(op.Spec.OperationType), category}
}

func (m *metrics) start(op *v1alpha1.Operation) { m.started.WithLabelValues(m.kind(op)...).Inc() }

// census has the number of operations in progress, of those near their timeout, and of those that wait for a lock.
type census struct{ running, near, locked int }

// newMetrics returns the metrics of an executor. queued returns the number of calls that wait for their turn.
func newMetrics(count func() census, queued func() int) *metrics {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	kind := []string{"type", "category"}
	return &metrics{
		categories: make(map[string]struct{}), coined: make(map[string]int),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_operations_started_total", Help: "Operations that were picked up.",
		}, kind),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_operations_finished_total", Help: "Operations that have ended, by phase and reason.",
		}, append(kind, "phase", "reason")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_operation_duration_seconds", Help: "From scheduling to the end.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 7200, 21600},
		}, append(kind, "phase")),
		near: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_operations_near_timeout_total", Help: "Operations that took over 90 % of their timeout.",
		}, kind),
		states: []prometheus.Collector{
			gauge("fairlead_operations_in_progress", "Operations picked up by this process that have not ended.",
				func() int { return count().running }),
			gauge("fairlead_operations_near_timeout", "Operations in progress that have used up 90 % of their timeout.",
				func() int { return count().near }),
			gauge("fairlead_operations_waiting_for_lock",
				"Operations in progress that wait for the end of another one, because of a lock.",
				func() int { return count().locked }),
			gauge("fairlead_webhook_calls_queued", "Calls that are due and wait for their turn.", queued),
		},
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_webhooks_quarantined_total",
			Help: "Webhooks that were quarantined because their code has killed the process.",
		}),
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_webhook_tries_total", Help: "Tries and polls of webhooks, by verdict.",
		}, []string{"purpose", "verdict"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_webhook_try_duration_seconds", Help: "Duration of tries and polls of webhooks.",
			Buckets: prometheus.ExponentialBuckets(.002, 2.5, 12),
		}, []string{"purpose"}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return append([]prometheus.Collector{m.started, m.finished, m.duration, m.near, m.tries, m.took, m.quarantined},
		m.states...)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *metrics) result(t record.Target, r webhook.Result) {
	purpose := string(t.Purpose)
	if purpose == "" {
		purpose = "main"
	}
	m.tries.WithLabelValues(purpose, r.Verdict.String()).Inc()
	m.took.WithLabelValues(purpose).Observe(r.Duration.Seconds())
}

func (m *metrics) end(op *v1alpha1.Operation, reason string) {
	kind := m.kind(op)
	took := op.Status.FinishedAt.Sub(op.ScheduledAt())
	m.finished.WithLabelValues(append(kind, string(op.Status.Phase), reason)...).Inc()
	m.duration.WithLabelValues(append(kind, string(op.Status.Phase))...).Observe(took.Seconds())
	if limit := op.Timeout(); took > limit/10*9 { // in this order: nine times the longest timeout overflows
		m.near.WithLabelValues(kind...).Inc()
	}
}

// breakers is a prometheus.Collector of the circuit breakers of all Webhooks.
type breakers struct{ client *webhook.Client }

var breakersDesc = prometheus.NewDesc("fairlead_webhook_breakers", "Webhooks in use by the state of their breaker.",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (breakers) Describe(ch chan<- *prometheus.Desc) { ch <- breakersDesc }

// Collect implements prometheus.Collector.
func (b breakers) Collect(ch chan<- prometheus.Metric) {
	for state, n := range b.client.Breakers() {
		ch <- prometheus.MustNewConstMetric(breakersDesc, prometheus.GaugeValue, float64(n), string(state))
	}
}
