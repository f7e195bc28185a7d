package call

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests. It is a prometheus.Collector that the program must register. Several clients may share one.
// A nil *Metrics counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	inFlight prometheus.Gauge
	refused  prometheus.Counter
}

// NewMetrics returns metrics with these names: fairlead_call_requests_total{verb,resource,code} (one per try; code is
// "none" without an answer), fairlead_call_request_duration_seconds{verb}, fairlead_call_retries_total{verb,reason},
// fairlead_call_in_flight and fairlead_call_budget_refused_total.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_call_requests_total", Help: "Requests sent to the API server, one for each attempt.",
		}, []string{"verb", "resource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fairlead_call_request_duration_seconds",
			Help:    "Duration of one attempt, until its response was read or it failed.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"verb"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_call_retries_total", Help: "Retried attempts, by the reason for the retry.",
		}, []string{"verb", "reason"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_call_in_flight", Help: "Requests in flight.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_call_budget_refused_total", Help: "Calls that gave up because the retry budget was exhausted.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.retries, m.inFlight, m.refused}
}

func (m *Metrics) began() {
	if m != nil {
		m.inFlight.Inc()
	}
}

func (m *Metrics) ended(r *Request, code int, took time.Duration) {
	if m == nil {
		return
	}
	m.inFlight.Dec()
	word := "none"
	if code != 0 {
		word = strconv.Itoa(code)
	}
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	m.requests.WithLabelValues(string(r.Verb), resource, word).Inc()
	m.duration.WithLabelValues(string(r.Verb)).Observe(took.Seconds())
}

func (m *Metrics) retried(v Verb, reason string) {
	if m != nil {
		m.retries.WithLabelValues(string(v), reason).Inc()
	}
}

func (m *Metrics) refusedByBudget() {
	if m != nil {
		m.refused.Inc()
	}
}
