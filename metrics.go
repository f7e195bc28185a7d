package fairlead

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// leadingMetric reports whether this process leads.
func leadingMetric(leading *atomic.Bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_leading", Help: "1 while this process leads, 0 while it waits for leadership.",
	}, func() float64 {
		if leading.Load() {
			return 1
		}
		return 0
	})
}
