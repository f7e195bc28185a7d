package admission

import (
	"crypto/x509"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of Hooks.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	writes   *prometheus.CounterVec
	expiry   prometheus.GaugeFunc
}

// newMetrics returns the metrics. leaf returns the served certificate, or nil.
func newMetrics(leaf func() *x509.Certificate) *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_admission_requests_total",
			Help: "Requests of the API server to hooks, by result: allowed, denied or failed.",
		}, []string{"hook", "operation", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_admission_request_duration_seconds", Help: "Duration of one request.",
			Buckets: prometheus.ExponentialBuckets(.0005, 4, 9),
		}, []string{"hook"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_admission_refused_total",
			Help: "Rejected requests, by reason: malformed, or too many at a time.",
		}, []string{"reason"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_admission_writes_total", Help: "Writes of the Secret, the configurations and the conversions.",
		}, []string{"kind"}),
		expiry: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fairlead_admission_certificate_expiry_timestamp_seconds",
			Help: "Expiry of the served certificate, in seconds since the epoch; NaN while there is none.",
		}, func() float64 {
			if cert := leaf(); cert != nil {
				return float64(cert.NotAfter.UnixNano()) / float64(time.Second)
			}
			return math.NaN()
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.refused, m.writes, m.expiry}
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
