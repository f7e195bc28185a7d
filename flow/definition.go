package flow

import "time"

// Definition is what a flow is made of, without its code: for people to look at.
type Definition struct {
	Name string
	// Steps are all of them, in order: those of a group one after the other, detours where they stand.
	Steps []StepDefinition
}

// StepDefinition is one step of a flow. Other steps are named by their paths.
type StepDefinition struct {
	Path string // within the flow: the groups that it is in, and its name, as "group/step"
	Fork bool   // it runs children, and waits for them: which ones is up to its code
	// Detour says that it stands outside the line: it leads back to the step that went there.
	Detour bool
	// Next is the step that follows; empty at the end of the line, and of a detour.
	Next string
	// OnError is where it goes when it fails for good; empty: the fiber fails.
	OnError string
	// To is where its code may go besides, as far as that was declared with To.
	To       []string
	Saves    bool          // the position is recorded before it runs
	Undoes   bool          // Undo runs something for it
	Deadline time.Duration // 0: none
}

// Definition returns what the flow is made of. The caller owns it.
func (fl *Flow[P]) Definition() Definition { return fl.compiled().definition() }

// Definition returns what the flow of the fiber is made of; the zero value for an Info that no engine has made, as one
// that was read as JSON. The caller owns it.
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
