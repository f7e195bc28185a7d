package flow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// A journal saves the positions of a fiber. Its methods are for the worker that runs the fiber. Except for restore,
// they do nothing if the journal is nil, as it is for a fiber without Positions. position.go has the saved form,
// snapshot.go makes it, resume.go reads it.

// reasonSave is the reason of a save before a step with Save.
const reasonSave = "save"

// saveTimeout limits one call of Positions.
const saveTimeout = 10 * time.Second

// queued records that another fiber of the key is alive. The position of that fiber must not be resumed.
func (j *journal) queued() {
	if j != nil {
		j.fresh, j.dirty = true, true
	}
}

// handOver lets the journal of the next fiber of the key resume the position, if it is kept.
func (j *journal) handOver(next *journal) {
	if j != nil && j.kept && next != nil {
		next.fresh = false
	}
}

// reach records that the fiber enters a step.
func (j *journal) reach(to int32) {
	if j != nil && !j.f.flow.def.steps[to].detour { // a detour is not in the line
		j.reached = max(j.reached, to)
	}
}

// beforeStep saves the position before a step with Save.
func (j *journal) beforeStep(ctx context.Context) error {
	if j == nil {
		return nil
	}
	return j.write(ctx, j.position(reasonSave))
}

// cover saves the current step, unless the stored position covers it already. After a crash Undo then knows that the
// step may have begun.
func (j *journal) cover(ctx context.Context, reason string) error {
	if j == nil || j.covered >= j.f.progress.pc {
		return nil
	}
	return j.writeIfNew(ctx, j.position(reason))
}

// parked saves that the fiber parks in its step, which runs again after a restart. attempt is that of the next run. An
// error does not stop the fiber.
func (j *journal) parked(ctx context.Context, why reason, attempt int32, deadline int64, orElse int32) {
	j.hint(ctx, why, func(p *Position) {
		p.Attempt = int(attempt)
		if deadline > 0 {
			p.Deadline = savedTime(j.f, deadline)
		}
		if why == whyRetry {
			p.Wake = savedTime(j.f, j.f.wake)
		}
		p.Else = j.f.flow.def.path(orElse)
	})
}

// delayed saves the step that follows a delay. An error does not stop the fiber.
func (j *journal) delayed(ctx context.Context, then, orElse int32) {
	j.hint(ctx, whyDelay, func(p *Position) {
		f := j.f
		left, to, wake := savedPlace(f, here(f)), nextStep(f, then), savedTime(f, f.wake)
		p.Left, p.Attempt, p.Wake, p.Started, p.Else = &left, 0, wake, wake, f.flow.def.path(orElse)
		p.Returns = then == none && f.step().detour
		p.Err, p.TimedOut = "", false
		if p.Last = to == none; !p.Last {
			p.Step = f.flow.def.path(to)
		}
	})
}

func (j *journal) hint(ctx context.Context, why reason, change func(*Position)) {
	if j == nil || j.f.progress.cancelled() {
		return
	}
	p := j.position(why.String())
	change(&p)
	j.keep(ctx, p)
}

// interrupted saves the step at which an interrupted fiber continues. An error does not stop the fiber. If a restart
// interrupted a wait and its step has not run since, the saved position remains valid.
func (j *journal) interrupted() {
	if j != nil && j.cutShort() == noWait {
		j.keep((*carrier)(j.f), j.position(Moved.String()))
	}
}

// keep saves a position. It logs and counts an error.
func (j *journal) keep(ctx context.Context, p Position) {
	f := j.f
	if err := j.writeIfNew(ctx, p); err != nil {
		j.env.lost.Add(1)
		j.env.log.WarnContext(ctx, "cannot save position", "key", f.key, "path", f.path(), "reason", p.Reason, "error", err)
	}
}

// ended clears the position of a completed fiber. It marks the position of any other ended fiber as ended, for Undo. A
// fiber that ends with cause ErrClosed or ErrInterrupted keeps its position, to resume later. A fiber that never began
// has none.
func (j *journal) ended(status Status, err error) {
	if j == nil || !j.f.begun {
		return
	}
	f, x := j.f, j.f.x.Load()
	if (status == Cancelled || status == Moved) && (matches(x.cause, ErrClosed) || matches(x.cause, ErrInterrupted)) {
		j.kept = true
		return
	}
	var failed error
	if status == Completed {
		if !j.dirty {
			return
		}
		failed = guard(f, func() error {
			ctx, cancel := context.WithTimeout((*carrier)(f), saveTimeout)
			defer cancel()
			return j.store.Clear(ctx, f.key)
		})
	} else if len(f.flow.def.steps) > 0 {
		p := j.position(status.String())
		p.Ended, p.Err, p.TimedOut, p.Back = true, brief(err.Error()), matches(err, ErrTimeout), nil
		if f.step().detour && len(x.back) > 0 { // Undo knows only the line
			p.Step = f.flow.def.path(x.back[0].pc)
		}
		failed = j.write((*carrier)(f), p)
	}
	if failed != nil {
		j.env.lost.Add(1)
		j.env.log.Warn("cannot save end of fiber", "key", f.key, "path", f.path(), "error", failed)
	}
}

// failed counts a failed load or save. again reports whether it may be tried again, and tries how often it was tried.
// At the limit (0: none) the count starts again.
func (j *journal) failed(limit int32) (tries int32, again bool) {
	if j.tries++; limit > 0 && j.tries >= limit {
		j.tries = 0
		return limit, false
	}
	return j.tries, true
}

// cutShort returns the wait that the restart interrupted at the current step, if no step has run since.
func (j *journal) cutShort() cutWait {
	if j == nil || j.cut.pc != j.f.progress.pc {
		return noWait
	}
	return j.cut
}

// forgetCut records that a step has run since the restart.
func (j *journal) forgetCut() {
	if j != nil {
		j.cut = noWait
	}
}

// writeIfNew saves a position unless it equals the last one saved. A difference in Trace alone does not count.
func (j *journal) writeIfNew(ctx context.Context, p Position) error {
	last := j.last
	last.Trace = p.Trace
	if j.saved && reflect.DeepEqual(p, last) {
		return nil
	}
	return j.write(ctx, p)
}

func (j *journal) write(ctx context.Context, p Position) error {
	f := j.f
	j.dirty = true
	err := guard(f, func() error {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		return j.store.Save(ctx, f.key, p)
	})
	if errors.Is(err, ErrOvertaken) {
		j.env.host.cancel(f, ErrOvertaken)
	}
	if err != nil {
		return fmt.Errorf("cannot save position: %w", err)
	}
	j.last, j.saved, j.tries = p, true, 0
	j.covered = max(j.covered, f.flow.def.reached(&p))
	return nil
}

// position returns the position to save.
func (j *journal) position(reason string) Position { return currentPosition(j.f, j, reason) }
