package flow

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the engine. The caller registers it.
func (e *Engine) Collector() prometheus.Collector { return collector{e} }

type collector struct{ e *Engine }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_flow_"+name, help, labels, nil)
}

// describe returns new descriptions of the metrics, because the package has no global state.
func describe() (d struct {
	live, ready, workers, started, ended, steps, seconds, preempted, stuck, lost *prometheus.Desc
},
) {
	d.live = desc("fibers", "Live fibers by status.", "status")
	d.ready = desc("fibers_ready", "Fibers waiting for a worker.")
	d.workers = desc("workers_busy", "Workers that run a fiber.")
	d.started = desc("fibers_started_total", "Fibers started, children included.", "flow")
	d.ended = desc("fibers_ended_total", "Fibers ended by status.", "flow", "status")
	d.steps = desc("steps_total", "Runs of steps by outcome.", "flow", "step", "outcome")
	d.seconds = desc("step_duration_seconds", "Running time of steps, without the time parked.", "flow", "step")
	d.preempted = desc("preempted_total", "Fibers cancelled in favour of a newer one of their key.")
	d.stuck = desc("stuck_total", "Reports of a predecessor that did not stop within the grace period.")
	d.lost = desc("positions_lost_total", "Positions that could not be saved.")
	return d
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	d := describe()
	for _, one := range []*prometheus.Desc{
		d.live, d.ready, d.workers, d.started, d.ended, d.steps, d.seconds,
		d.preempted, d.stuck, d.lost,
	} {
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
