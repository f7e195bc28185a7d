package fairlead

import (
	"iter"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
)

// Status returns the current state of the runtime, for the console. It includes at most failures failing objects of each
// controller; a negative value includes all.
func (rt *Runtime) Status(failures int) inspect.Runtime {
	now, lacking := rt.lacking(rt.phase.Load().(phase))
	s := inspect.Runtime{
		Phase: string(now), Problems: rt.stale(), Conditions: rt.refused(0), Lacking: append(lacking, rt.unready()...), Sources: rt.sources(),
		Controllers: []inspect.Controller{},
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
