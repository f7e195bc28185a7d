package flow

import (
	"context"
	"time"
)

// load reads the saved position of the fiber's key; false if there is none.
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

// begin is where the fiber begins, given its saved position. With a reason, it is parked there until f.wake.
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
		// An undoing that failed, or was cancelled: what it has undone stays undone, and what was never done needs
		// none.
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
		f.e.log.Info("position is not resumed: the way back from its detour is not known", "key", f.key, "flow", def.name,
			"step", pos.Step)
		return start, whyNone
	}
	return m, why
}

// adopt takes over what stays the same across restarts.
func (s saver) adopt(pos Position) {
	x := s.f.x.Load()
	x.checkpoint = pos.Checkpoint
	x.token = pos.Token
	s.last, s.saved = pos, true
	s.f.linkTrace(pos.Trace)
}

// goOn goes on at step i, or with the delay that leads there, where the position was saved; false if it cannot.
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
	f.progress.resume(here.pc, s.past(pos.Begun, now)) // where it is if it is cancelled before it goes on
	if s.timeout > 0 {
		x.deadline = plus(f.progress.began, s.timeout)
	}
	if pos.Err != "" {
		saved := &SavedError{Text: pos.Err, TimedOut: pos.TimedOut}
		s.f.note(func(n *notes) { n.led = saved })
	}
	m := move{kind: moveRepeat, to: here.pc, attempt: here.attempt, entered: here.entered}
	if !delayed && pos.Reason == whyDelay.String() {
		// Without Left, Started may be that of the step before. The step is entered after the delay, or later.
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
	case pos.Reason == Moved.String(): // it has yet to run
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
		m.attempt = max(m.attempt, 1) - 1 // picking up counts it
	default:
		m.entered = f.wake
	}
	return m, why, true
}

// way finds the steps of saved places; false if one is not known any more.
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

// back finds the step of a saved place; false if it is not known any more.
func (s saver) back(p Place, now int64) (back, bool) {
	i, known := s.f.flow.def.index[p.Step]
	return back{pc: i, attempt: int32(min(max(p.Attempt, 0), 1<<30)), entered: s.past(p.Started, now)}, known
}

// past is a time that was saved; now if that is absent or in the future.
func (s saver) past(t time.Time, now int64) int64 { return s.pastOr(t, now, now) }

func (s saver) pastOr(t time.Time, now, otherwise int64) int64 {
	if at := s.f.e.since(t); hasTime(t) && at < now {
		return at
	}
	return otherwise
}

// hasTime reports whether a position has a time. One of the first year is that of a fake clock which began with the zero
// time: it says nothing about ours.
func hasTime(t time.Time) bool { return t.UTC().Year() > 1 }
