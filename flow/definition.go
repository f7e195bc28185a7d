package flow

import "time"

// Definition describes a flow without its code, for display.
type Definition struct {
	Name string
	// Steps are all steps in the order of the definition, with groups flattened and detours included.
	Steps []StepDefinition
}

// StepDefinition is one step of a flow. It refers to other steps by their paths.
type StepDefinition struct {
	Path string // within the flow, such as "group/step"
	Fork bool   // the step runs children, which its code chooses, and waits for them
	// Detour reports that the step is outside the line. It returns to the step that went there.
	Detour bool
	// Next is the following step; empty at the end of the line and for a detour.
	Next string
	// OnError is the step that follows when this one fails for good. If it is empty, the fiber fails.
	OnError string
	// To are the further steps that the code may go to, as declared with the option To.
	To       []string
	Saves    bool          // the position is saved before the step runs
	Undoes   bool          // the step has an Undo
	Deadline time.Duration // 0: none
}

// Definition returns the definition of the flow. The caller owns it.
func (fl *Flow[P]) Definition() Definition { return fl.compiled().definition() }

// Definition returns the definition of the fiber's flow. It returns the zero value for an Info that was not made by an
// engine, such as one decoded from JSON. The caller owns the result.
func (i Info) Definition() Definition {
	if i.def == nil {
		return Definition{}
	}
	return i.def.definition()
}

func (d *def) definition() Definition {
	out := Definition{Name: d.name, Steps: make([]StepDefinition, len(d.steps))}
	path := func(i int32) string {
		if i == none {
			return ""
		}
		return d.steps[i].path
	}
	for i := range d.steps {
		s := &d.steps[i]
		one := StepDefinition{
			Path: s.path, Fork: s.fork, Detour: s.detour, Next: path(s.next), OnError: path(s.onError), Saves: s.save,
			Undoes: s.undoes, Deadline: s.deadline,
		}
		for _, to := range s.targets {
			one.To = append(one.To, path(to))
		}
		out.Steps[i] = one
	}
	return out
}
