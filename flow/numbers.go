package flow

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type flowNumbers struct {
	begun atomic.Uint64
	ends  [Moved - Completed + 1]atomic.Uint64
	steps map[string]*stepNumbers
}

// stepNumbers has the outcomes and the running times of a step.
type stepNumbers struct {
	outcomes [opSkip + 1]atomic.Uint64
	total    atomic.Int64 // in nanoseconds
	buckets  [len(bucketBounds) + 1]atomic.Uint64
}

var bucketBounds = [...]time.Duration{
	10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond,
	100 * time.Millisecond, time.Second, 10 * time.Second, 100 * time.Second,
}

func (n *stepNumbers) observe(outcome op, took int64) {
	n.outcomes[outcome].Add(1)
	n.total.Add(took)
	i := 0
	for i < len(bucketBounds) && took > int64(bucketBounds[i]) {
		i++
	}
	n.buckets[i].Add(1)
}

func (n *stepNumbers) histogram(d *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bucketBounds))
	var sum uint64
	for i, b := range bucketBounds {
		sum += n.buckets[i].Load()
		buckets[b.Seconds()] = sum
	}
	sum += n.buckets[len(bucketBounds)].Load()
	return prometheus.MustNewConstHistogram(d, sum, time.Duration(n.total.Load()).Seconds(), buckets, labels...)
}
