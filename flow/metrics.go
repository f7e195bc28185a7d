package flow

import "github.com/prometheus/client_golang/prometheus"

type collector struct {
	core   *core
	fibers *lifecycle
}

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
	d.workers = desc("workers_busy", "Workers that run a fiber and do not wait for the answer to a request.")
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
	d, s := describe(), countsOf(c.core, c.fibers)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(d.live, float64(max(s.live-s.queued-s.busy-s.away, 0)), Parked.String())
	gauge(d.live, float64(s.queued), Ready.String())
	gauge(d.live, float64(s.busy+s.away), Running.String())
	gauge(d.ready, float64(s.queued))
	gauge(d.workers, float64(s.busy))
	count(d.preempted, s.preempted)
	count(d.stuck, s.stuck)
	count(d.lost, s.lost)
	for name, f := range s.flows {
		count(d.started, f.begun.Load(), name)
		for i := range f.ends {
			count(d.ended, f.ends[i].Load(), name, (Completed + Status(i)).String())
		}
		for path, step := range s.steps[name] {
			for outcome := range step.outcomes {
				if v := step.outcomes[outcome].Load(); v > 0 {
					count(d.steps, v, name, path, op(outcome).String())
				}
			}
			ch <- step.histogram(d.seconds, name, path)
		}
	}
}

// counts is a snapshot of the numbers of an engine.
type counts struct {
	live, queued           int
	busy, away             int
	preempted, stuck, lost uint64
	flows                  map[string]*flowNumbers
	steps                  map[string]map[string]*stepNumbers // by flow and path
}

func countsOf(c *core, l *lifecycle) counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := counts{
		live:      l.live.n,
		preempted: l.preempted.Load(), stuck: l.stuck.Load(), lost: l.lost.Load(),
	}
	s.queued, s.busy, s.away = c.sched.load()
	s.flows, s.steps = l.flows.snapshot()
	return s
}
