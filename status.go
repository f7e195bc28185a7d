package fairlead

import (
	"iter"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
)

// Status returns the current state of the runtime, for the console. It includes at most failures failing objects of each
// controller; a negative value includes all.
func (rt *Runtime) Status(failures int) inspect.Runtime {
	s := inspect.Runtime{Sources: sourcesOf(rt.declared.members()), Controllers: []inspect.Controller{}}
	rt.health.fill(&s)
	for _, c := range rt.declared.overseen() {
		s.Controllers = append(s.Controllers, c.Describe(failures))
	}
	if since, blocked := rt.engines.get().BlockedSince(); blocked {
		s.FlowsBlockedSince = &since
	}
	return s
}

// Fibers yields the live fibers of the runtime's engine, oldest first.
func (rt *Runtime) Fibers() iter.Seq[flow.Info] {
	e := rt.engines.get()
	if e == nil {
		return func(func(flow.Info) bool) {}
	}
	return e.Fibers()
}
