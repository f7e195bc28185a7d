package flow

import (
	"context"
	"time"
)

// load reads the saved position of the fiber's key. It returns false if there is none.
func (s saver) load(ctx context.Context) (pos Position, found bool, err error) {
	s.cut, s.reached, s.covered = noWait, none, none
	err = s.f.guard(func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		pos, found, err = s.store.Load(ctx, s.f.key)
		return err
	})
	return pos, found, err
}

// begin returns the first move of a fiber with a saved position. If the reason is not whyNone, the fiber is parked at
// that step until f.wake.
func (s saver) begin(pos Position, now int64) (move, reason) {
	f, def := s.f, s.f.flow.def
	start := move{kind: moveEnter, to: f.resume}
	s.dirty = true
	if def.forward != nil && pos.Flow == def.forward.name {
		from := pos.cameTo()
		if pos.Reached != "" {
			from = pos.Reached
		}
		if i, ok := def.from(from); ok && pos.Version == def.version {
			start.to = i
		}
		s.adopt(pos)
		return start, whyNone
	}
	s.durable.reached = def.reached(pos)
	s.covered = s.durable.reached
	i, known := def.index[pos.Step]
	same := known && pos.Flow == def.name && pos.Version == def.version
	over := pos.Ended || s.fresh || pos.Generation != s.generation
	if def.forward != nil && same && over {
		// An undo run that failed or was cancelled continues at its last step. Earlier steps are undone already, or were
		// never begun.
		s.adopt(pos)
		start.to = i
		return start, whyNone
	}
	if !same || over {
		f.e.log.Info("position is not resumed", "key", f.key, "flow", def.name, "version", def.version, "saved", pos.Flow,
			"savedVersion", pos.Version, "step", pos.Step, "ended", pos.Ended)
		return start, whyNone
	}
	m, why, ok := s.goOn(i, pos, now)
	if !ok {
		f.e.log.Info("position is not resumed: the return address of its detour is unknown", "key", f.key, "flow", def.name,
			"step", pos.Step)
		return start, whyNone
	}
	return m, why
}

// adopt takes over the parts of the position that stay the same across restarts.
func (s saver) adopt(pos Position) {
	x := s.f.x.Load()
	x.checkpoint = pos.Checkpoint
	x.token = pos.Token
	s.last, s.saved = pos, true
	s.f.linkTrace(pos.Trace)
}

// goOn resumes at step i, or in the delay that leads there. It returns false if the position does not allow that.
func (s saver) goOn(i int32, pos Position, now int64) (move, reason, bool) {
	f, def := s.f, s.f.flow.def
	at := Place{Step: pos.Step, Attempt: pos.Attempt, Started: pos.Started}
	delayed := pos.Left != nil && pos.Reason == whyDelay.String()
	if delayed {
		at = *pos.Left
	}
	here, known := s.back(at, now)
	if !known {
		return move{}, whyNone, false
	}
	back, known := s.way(pos.Back, now)
	if !known {
		return move{}, whyNone, false
	}
	if def.steps[here.pc].detour && len(back) == 0 {
		return move{}, whyNone, false // the position was not saved by an engine
	}
	s.adopt(pos)
	x := f.ext()
	x.back = back
	f.progress.resume(here.pc, s.past(pos.Begun, now)) // the step of a fiber that is cancelled before it runs
	if s.timeout > 0 {
		x.deadline = plus(f.progress.began, s.timeout)
	}
	if pos.Err != "" {
		saved := &SavedError{Text: pos.Err, TimedOut: pos.TimedOut}
		s.f.note(func(n *notes) { n.led = saved })
	}
	m := move{kind: moveRepeat, to: here.pc, attempt: here.attempt, entered: here.entered}
	if !delayed && pos.Reason == whyDelay.String() {
		// Without Left, Started may be that of the previous step. The step is entered after the delay or later.
		m.entered = max(s.pastOr(pos.Wake, now, 0), s.pastOr(pos.Started, now, 0))
		if m.entered == 0 {
			m.entered = now
		}
	}
	orElse, leads := def.index[pos.Else]
	if !leads {
		orElse = none
	}
	switch {
	case pos.Reason == Moved.String(): // the step has not run yet
		return m, whyNone, true
	case !hasTime(pos.Wake):
		if s.cut = (cutWait{pc: here.pc, orElse: orElse}); hasTime(pos.Deadline) {
			s.cut.deadline = f.e.since(pos.Deadline)
		}
		return m, whyNone, true
	}
	why := whyDelay
	if pos.Reason == whyRetry.String() {
		why = whyRetry
	}
	if !delayed && why == whyDelay && !pos.Wake.After(f.e.clock.Now()) {
		return m, whyNone, true
	}
	if leads {
		f.park = &parking{orElse: orElse}
	}
	f.resume, f.wake = i, f.e.since(pos.Wake)
	switch {
	case pos.Last, pos.Returns:
		f.resume = none
	case delayed:
	case why == whyRetry:
		m.attempt = max(m.attempt, 1) - 1 // slept increments it again
	default:
		m.entered = f.wake
	}
	return m, why, true
}

// way returns the steps of saved places. It returns false if a step no longer exists.
func (s saver) way(places []Place, now int64) (way []back, known bool) {
	for _, p := range places {
		b, known := s.back(p, now)
		if !known {
			return nil, false
		}
		way = append(way, b)
	}
	return way, true
}

// back returns the step of a saved place. It returns false if the step no longer exists.
func (s saver) back(p Place, now int64) (back, bool) {
	i, known := s.f.flow.def.index[p.Step]
	return back{pc: i, attempt: int32(min(max(p.Attempt, 0), 1<<30)), entered: s.past(p.Started, now)}, known
}

// past converts a saved time to the engine's time. It returns now if the time is absent or in the future.
func (s saver) past(t time.Time, now int64) int64 { return s.pastOr(t, now, now) }

func (s saver) pastOr(t time.Time, now, otherwise int64) int64 {
	if at := s.f.e.since(t); hasTime(t) && at < now {
		return at
	}
	return otherwise
}

// hasTime reports whether a position has this time. A time in year 1 was saved by a fake clock that began at the zero
// time, and is not comparable to the current clock.
func hasTime(t time.Time) bool { return t.UTC().Year() > 1 }
