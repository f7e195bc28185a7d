package fairlead

import (
	"iter"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Status is the state of a runtime, as its pages show it.
type Status struct {
	// Phase is the phase, such as "ready", or a message that names the current leader.
	Phase string `json:"phase"`
	// Problems are the reasons why /healthz fails. Lacking are the reasons why the process does not do all of its work.
	Problems []string `json:"problems"`
	// Conditions are the resources that the API server does not serve or forbids to this program. A restart does not
	// change that, so /healthz lists them and still returns 200.
	Conditions []string `json:"conditions"`
	Lacking    []string `json:"lacking"`
	// Sources are the resources that observers, reconcilers and clients watch.
	Sources     []observe.SourceDescription `json:"sources"`
	Controllers []reconcile.Description     `json:"controllers"`
	// FlowsBlockedSince is [flow.Engine.BlockedSince] of the runtime's engine. It is nil if the engine is not blocked.
	FlowsBlockedSince *time.Time `json:"flowsBlockedSince,omitempty"`
}

// Status returns the current state of the runtime. It includes at most failures failing objects of each controller; a
// negative value includes all.
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

// Fibers yields the live fibers of the runtime's engine, oldest first.
func (rt *Runtime) Fibers() iter.Seq[flow.Info] {
	rt.mu.Lock()
	e := rt.engine
	rt.mu.Unlock()
	if e == nil {
		return func(func(flow.Info) bool) {}
	}
	return e.Fibers()
}
