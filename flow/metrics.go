package flow

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bound is a flow on an engine: its definition and where its numbers go. Flows of the same name share their numbers, so that
// flows that are built again and again do not pile up.
type bound struct {
	def   *def
	steps []*stepNumbers
	flow  *flowNumbers
	refs  int // live fibers
}

// registry keeps the flows and numbers of an engine. Guarded by Engine.mu, but for the numbers.
type registry struct {
	bound map[*def]*bound
	flows map[string]*flowNumbers
}

type flowNumbers struct {
	begun atomic.Uint64
	ends  [3]atomic.Uint64 // completed, failed, cancelled
	steps map[string]*stepNumbers
}

// stepNumbers count the outcomes of a step and its running times.
type stepNumbers struct {
	outcomes [opSkip + 1]atomic.Uint64
	total    atomic.Int64 // nanoseconds
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

// keepBound is how many flows without fibers are remembered.
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

// Collector returns the metrics of the engine, for a registry of the user's choice.
func (e *Engine) Collector() prometheus.Collector { return collector{e} }

type collector struct{ e *Engine }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_flow_"+name, help, labels, nil)
}

// describe lists the metrics. They are made anew each time, since there is no package state.
func describe() (d struct{ live, ready, workers, started, ended, steps, seconds, preempted, stuck, lost *prometheus.Desc }) {
	d.live = desc("fibers", "Live fibers by status.", "status")
	d.ready = desc("fibers_ready", "Fibers that wait for a worker.")
	d.workers = desc("workers_busy", "Workers that run a fiber.")
	d.started = desc("fibers_started_total", "Fibers started, children included.", "flow")
	d.ended = desc("fibers_ended_total", "Fibers ended by status.", "flow", "status")
	d.steps = desc("steps_total", "Runs of steps by outcome.", "flow", "step", "outcome")
	d.seconds = desc("step_duration_seconds", "Running time of steps, without the time parked.", "flow", "step")
	d.preempted = desc("preempted_total", "Fibers cancelled in favour of a newer one of their key.")
	d.stuck = desc("stuck_total", "Reports of a predecessor that did not stop within the grace.")
	d.lost = desc("positions_lost_total", "Positions that could not be saved.")
	return d
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	d := describe()
	for _, one := range []*prometheus.Desc{d.live, d.ready, d.workers, d.started, d.ended, d.steps, d.seconds, d.preempted, d.stuck, d.lost} {
		ch <- one
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	e, d := c.e, describe()
	e.mu.Lock()
	live, busy := e.nlive, len(e.workers)-e.nidle
	flows := make(map[string]*flowNumbers, len(e.flows.flows))
	steps := map[string]map[string]*stepNumbers{}
	for name, f := range e.flows.flows {
		flows[name] = f
		steps[name] = make(map[string]*stepNumbers, len(f.steps))
		for path, s := range f.steps {
			steps[name][path] = s
		}
	}
	e.mu.Unlock()

	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	queued := int(e.queued.Load())
	gauge(d.live, float64(max(live-queued-busy, 0)), Parked.String())
	gauge(d.live, float64(queued), Ready.String())
	gauge(d.live, float64(busy), Running.String())
	gauge(d.ready, float64(queued))
	gauge(d.workers, float64(busy))
	count(d.preempted, e.preempt.Load())
	count(d.stuck, e.stuck.Load())
	count(d.lost, e.lost.Load())
	for name, f := range flows {
		count(d.started, f.begun.Load(), name)
		for i := range f.ends {
			count(d.ended, f.ends[i].Load(), name, (Completed + Status(i)).String())
		}
		for path, s := range steps[name] {
			for outcome := range s.outcomes {
				if v := s.outcomes[outcome].Load(); v > 0 {
					count(d.steps, v, name, path, op(outcome).String())
				}
			}
			ch <- s.histogram(d.seconds, name, path)
		}
	}
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
