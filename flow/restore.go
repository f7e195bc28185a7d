package flow

import "context"

// restore loads the saved position of the fiber's key. It returns the first move of the fiber. If the reason is not
// whyNone, the fiber is parked at that step until f.wake.
func (j *journal) restore(ctx context.Context, now int64) (first move, why reason, err error) {
	j.cut, j.reached, j.covered = noWait, none, none
	var pos Position
	found := false
	err = guard(j.f, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		pos, found, err = j.store.Load(ctx, j.f.key)
		return err
	})
	if err != nil || !found {
		return move{kind: moveEnter, to: j.f.resume}, whyNone, err
	}
	first, why = j.begin(&pos, now)
	return first, why, nil
}

// begin is restore for the position that was found.
func (j *journal) begin(pos *Position, now int64) (move, reason) {
	f, def := j.f, j.f.flow.def
	first := move{kind: moveEnter, to: f.resume}
	j.dirty = true
	if def.forward != nil && pos.Flow == def.forward.name {
		from := pos.cameTo()
		if pos.Reached != "" {
			from = pos.Reached
		}
		if i, ok := def.from(from); ok && pos.Version == def.version {
			first.to = i
		}
		j.adopt(pos)
		return first, whyNone
	}
	j.reached = def.reached(pos)
	j.covered = j.reached
	i, known := def.index[pos.Step]
	same := known && pos.Flow == def.name && pos.Version == def.version
	over := pos.Ended || j.fresh || pos.Generation != j.generation
	if def.forward != nil && same && over {
		// An undo run that failed or was cancelled continues at its last step. Earlier steps are undone already, or
		// were never begun.
		j.adopt(pos)
		first.to = i
		return first, whyNone
	}
	switch {
	case over: // the end of a run, or a change of the object, begins a new run
		return first, whyNone
	case !same:
		j.env.log.Info("position is not resumed", "key", f.key, "flow", def.name, "version", def.version, "saved", pos.Flow,
			"savedVersion", pos.Version, "step", pos.Step)
		return first, whyNone
	}
	r, ok := planResumption(def, i, pos, &f.e.time, now)
	if !ok {
		j.env.log.Info("position is not resumed: the return address of its detour is unknown", "key", f.key,
			"flow", def.name, "step", pos.Step)
		return first, whyNone
	}
	j.adopt(pos)
	j.resume(pos, &r)
	return r.first, r.why
}

// adopt takes over the parts of the position that stay the same across restarts.
func (j *journal) adopt(pos *Position) {
	x := j.f.x.Load()
	x.checkpoint = pos.Checkpoint
	x.token = pos.Token
	j.last, j.saved = *pos, true
	x.trace.link(pos.Trace)
}

// resume sets the fiber to where it continues.
func (j *journal) resume(pos *Position, r *resumption) {
	f, x := j.f, j.f.x.Load()
	x.back, j.cut = r.back, r.cut
	f.progress.resume(r.first.to, r.began) // the step of a fiber that is cancelled before it runs
	if j.timeout > 0 {
		x.deadline = plus(f.progress.began, j.timeout)
	}
	if pos.Err != "" {
		saved := &SavedError{Text: pos.Err, TimedOut: pos.TimedOut}
		annotate(f, func(n *notes) { n.led = saved })
	}
	if r.why == whyNone {
		return
	}
	f.resume, f.wake = r.resume, r.wake
	if r.orElse != none {
		f.park = &parking{orElse: r.orElse}
	}
}
