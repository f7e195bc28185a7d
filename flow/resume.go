package flow

import "time"

// resumption says how a fiber continues at a saved position.
type resumption struct {
	first move
	began int64  // when the fiber was first started
	back  []back // the steps that detours return to
	cut   cutWait

	// why says why the fiber is parked before the first move, until wake. whyNone means that it is not.
	why    reason
	wake   int64
	resume int32 // as fiber.resume
	orElse int32 // none, or the step that follows if the deadline of the step passes meanwhile
}

// planResumption returns how a fiber of d continues at pos, which was saved by the same version of d. i is the step of
// pos. ok is false if the position names a step to return to that does not exist.
func planResumption(d *def, i int32, pos *Position, t *timeline, now int64) (r resumption, ok bool) {
	saved := savedTimes{t, now}
	left := pos.Left != nil && pos.Reason == whyDelay.String() // the step whose delay leads to i is known
	at := Place{Step: pos.Step, Attempt: pos.Attempt, Started: pos.Started}
	if left {
		at = *pos.Left
	}
	here, ok := saved.place(d, at)
	if !ok {
		return r, false
	}
	r = resumption{began: saved.past(pos.Begun), cut: noWait, orElse: none}
	for _, p := range pos.Back {
		b, ok := saved.place(d, p)
		if !ok {
			return r, false
		}
		r.back = append(r.back, b)
	}
	if d.steps[here.pc].detour && len(r.back) == 0 {
		return r, false // the position was not saved by an engine
	}
	r.first = move{kind: moveRepeat, to: here.pc, attempt: here.attempt, entered: here.entered}
	if !left && pos.Reason == whyDelay.String() {
		// Without Left, Started may be that of the previous step. The step is entered after the delay or later.
		if r.first.entered = max(saved.pastOr(pos.Wake, 0), saved.pastOr(pos.Started, 0)); r.first.entered == 0 {
			r.first.entered = now
		}
	}
	orElse, leads := d.index[pos.Else]
	if !leads {
		orElse = none
	}
	switch {
	case pos.Reason == Moved.String(): // the step has not run yet
		return r, true
	case !hasTime(pos.Wake):
		if r.cut = (cutWait{pc: here.pc, orElse: orElse}); hasTime(pos.Deadline) {
			r.cut.deadline = t.since(pos.Deadline)
		}
		return r, true
	case !left && pos.Reason != whyRetry.String() && !pos.Wake.After(t.clock.Now()):
		return r, true
	}
	r.why, r.wake, r.resume, r.orElse = whyDelay, t.since(pos.Wake), i, orElse
	if pos.Reason == whyRetry.String() {
		r.why = whyRetry
	}
	switch {
	case pos.Last, pos.Returns:
		r.resume = none
	case left:
	case r.why == whyRetry:
		r.first.attempt = max(r.first.attempt, 1) - 1 // the end of the wait increments it again
	default:
		r.first.entered = r.wake
	}
	return r, true
}

// savedTimes reads the times of a position.
type savedTimes struct {
	*timeline
	present int64
}

// place returns the step of a saved place. It returns false if the step does not exist.
func (s savedTimes) place(d *def, p Place) (back, bool) {
	i, ok := d.index[p.Step]
	return back{pc: i, attempt: int32(min(max(p.Attempt, 0), 1<<30)), entered: s.past(p.Started)}, ok
}

// past converts a saved time to the engine's time. It returns now if the time is absent or in the future.
func (s savedTimes) past(t time.Time) int64 { return s.pastOr(t, s.present) }

func (s savedTimes) pastOr(t time.Time, otherwise int64) int64 {
	if at := s.since(t); hasTime(t) && at < s.present {
		return at
	}
	return otherwise
}

// hasTime reports whether a position has this time. A time in year 1 was saved by a fake clock that began at the zero
// time, and is not comparable to the current clock.
func hasTime(t time.Time) bool { return t.UTC().Year() > 1 }
