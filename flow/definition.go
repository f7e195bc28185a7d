package flow

import "github.com/fairlead-io/fairlead/internal/outline"

// Definition returns the definition of the fiber's flow, for the console. It returns the zero value for an Info that
// was not made by an engine, such as one decoded from JSON. The caller owns the result.
func (i Info) Definition() outline.Flow {
	if i.def == nil {
		return outline.Flow{}
	}
	return i.def.definition()
}

func (d *def) definition() outline.Flow {
	out := outline.Flow{Name: d.name, Steps: make([]outline.Step, len(d.steps))}
	for i := range d.steps {
		s := &d.steps[i]
		one := outline.Step{
			Path: s.path, Fork: s.fork, Detour: s.detour, Next: d.path(s.next), OnError: d.path(s.onError), Saves: s.save,
			Undoes: s.undoes, Deadline: s.deadline,
		}
		for _, to := range s.targets {
			one.To = append(one.To, d.path(to))
		}
		out.Steps[i] = one
	}
	return out
}
