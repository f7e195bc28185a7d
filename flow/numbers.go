package flow

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bound is a flow on an engine, with its metrics. Flows of the same name share their metrics, so a program that builds
// a flow repeatedly does not leak memory.
type bound struct {
	def   *def
	steps []*stepNumbers
	flow  *flowNumbers
	refs  int // number of live fibers
}

// registry has the flows and metrics of an engine. Engine.mu guards it; the metrics themselves are atomic.
type registry struct {
	bound map[*def]*bound
	flows map[string]*flowNumbers
}

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

// keepBound is how many flows the registry may have before it drops flows without fibers.
const keepBound = 256

func (r *registry) bind(d *def) *bound {
	if b := r.bound[d]; b != nil {
		b.refs++
		return b
	}
	if r.bound == nil {
		r.bound, r.flows = map[*def]*bound{}, map[string]*flowNumbers{}
	}
	numbers := r.flows[d.name]
	if numbers == nil {
		numbers = &flowNumbers{steps: map[string]*stepNumbers{}}
		r.flows[d.name] = numbers
	}
	b := &bound{def: d, flow: numbers, refs: 1, steps: make([]*stepNumbers, len(d.steps))}
	for i := range d.steps {
		s := numbers.steps[d.steps[i].path]
		if s == nil {
			s = &stepNumbers{}
			numbers.steps[d.steps[i].path] = s
		}
		b.steps[i] = s
	}
	r.bound[d] = b
	return b
}

func (r *registry) release(b *bound) {
	if b.refs--; b.refs == 0 && len(r.bound) > keepBound {
		delete(r.bound, b.def)
	}
}

func (b *bound) started()            { b.flow.begun.Add(1) }
func (b *bound) ended(status Status) { b.flow.ends[status-Completed].Add(1) }

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
