package flow

// furthest returns Position.Reached for a position that is saved at step to.
func (j *journal) furthest(of *def, to int32) string {
	if j.reached <= to || of.forward != nil {
		return ""
	}
	return of.steps[j.reached].path
}

// reached returns the furthest step that the runs of a saved position may have begun. The position is saved before each
// step with an Undo. If the position is of another flow or version, its steps cannot be compared, and reached returns
// the last step so that Undo covers the whole flow.
func (d *def) reached(pos *Position) int32 {
	if pos.Flow != d.name || pos.Version != d.version {
		return int32(len(d.steps) - 1)
	}
	furthest := none
	for _, path := range []string{pos.cameTo(), pos.Reached} {
		if path == "" {
			continue
		}
		i, ok := d.index[path]
		if !ok {
			return int32(len(d.steps) - 1)
		}
		furthest = max(furthest, i)
	}
	return furthest
}

// cameTo returns the step of the line that the fiber had reached. In a detour, or during a delay, that is the step that
// it left.
func (p *Position) cameTo() string {
	switch {
	case len(p.Back) > 0:
		return p.Back[0].Step
	case p.Left != nil:
		return p.Left.Step
	}
	return p.Step
}
