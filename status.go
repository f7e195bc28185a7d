package fairlead

import (
	"iter"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Status is what a runtime is doing, as its pages tell it.
type Status struct {
	// Phase is such as "ready", or who leads instead of this process.
	Phase string `json:"phase"`
	// Problems are why /healthz fails; Lacking is what keeps the process from doing all that is its part.
	Problems []string `json:"problems"`
	// Conditions are the resources that the API server does not serve, or forbids to this program. No restart changes
	// that: /healthz tells them and stays 200.
	Conditions []string `json:"conditions"`
	Lacking    []string `json:"lacking"`
	// Sources are what is watched, by observers, reconcilers and clients.
	Sources     []observe.SourceDescription `json:"sources"`
	Controllers []reconcile.Description     `json:"controllers"`
	// FlowsBlockedSince is that of [flow.Engine.BlockedSince], of the engine that the runtime looks after; nil if that
	// is not blocked.
	FlowsBlockedSince *time.Time `json:"flowsBlockedSince,omitempty"`
}

// Status returns what the runtime is doing now, with at most so many of the failures of each controller; negative: all of
// them.
func (rt *Runtime) Status(failures int) Status {
	now, lacking := rt.lacking(rt.phase.Load().(phase))
	s := Status{
		Phase: string(now), Problems: rt.stale(), Conditions: rt.refused(0), Lacking: append(lacking, rt.unready()...), Sources: rt.sources(),
		Controllers: []reconcile.Description{},
	}
	for _, c := range rt.overseen() {
		s.Controllers = append(s.Controllers, c.Describe(failures))
	}
	rt.mu.Lock()
	e := rt.engine
	rt.mu.Unlock()
	if since, blocked := e.BlockedSince(); blocked {
		s.FlowsBlockedSince = &since
	}
	return s
}

// Fibers yields pictures of the live fibers of the engine that the runtime looks after, the oldest first.
func (rt *Runtime) Fibers() iter.Seq[flow.Info] {
	rt.mu.Lock()
	e := rt.engine
	rt.mu.Unlock()
	if e == nil {
		return func(func(flow.Info) bool) {}
	}
	return e.Fibers()
}
