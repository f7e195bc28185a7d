package flow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// saver saves the positions of a fiber. Its methods do nothing for a fiber without Positions.
type saver struct {
	f *fiber
	*durable
}

func (f *fiber) saver() saver { return saver{f, f.durable()} }

// reasonSave is the reason of a save before a step with Save.
const reasonSave = "save"

// saveTimeout limits one call of Positions.
const saveTimeout = 10 * time.Second

// reach records that the fiber enters a step.
func (s saver) reach(to int32) {
	if s.durable != nil && !s.f.flow.def.steps[to].detour { // a detour is not in the line
		s.reached = max(s.reached, to)
	}
}

// beforeStep saves the position before a step with Save.
func (s saver) beforeStep(ctx context.Context) error {
	if s.durable == nil {
		return nil
	}
	return s.write(ctx, s.position(reasonSave))
}

// cover saves the current step, unless the stored position covers it already. After a crash Undo then knows that the
// step may have begun.
func (s saver) cover(ctx context.Context, reason string) error {
	if s.durable == nil || s.covered >= s.f.progress.pc {
		return nil
	}
	return s.writeIfNew(ctx, s.position(reason))
}

// parked saves that the fiber parks in its step, which runs again after a restart. attempt is that of the next run. An
// error does not stop the fiber.
func (s saver) parked(ctx context.Context, why reason, attempt int32, deadline int64, orElse int32) {
	s.hint(ctx, why, func(p *Position) {
		p.Attempt = int(attempt)
		if deadline > 0 {
			p.Deadline = s.wall(deadline)
		}
		if why == whyRetry {
			p.Wake = s.wall(s.f.wake)
		}
		p.Else = s.pathOf(orElse)
	})
}

// delayed saves the step that follows a delay. An error does not stop the fiber.
func (s saver) delayed(ctx context.Context, then, orElse int32) {
	f := s.f
	s.hint(ctx, whyDelay, func(p *Position) {
		left, to := s.place(f.leave()), f.target(then)
		p.Left, p.Attempt, p.Wake, p.Started, p.Else = &left, 0, s.wall(f.wake), s.wall(f.wake), s.pathOf(orElse)
		p.Returns = then == none && f.step().detour
		p.Err, p.TimedOut = "", false
		if p.Last = to == none; !p.Last {
			p.Step = s.pathOf(to)
		}
	})
}

func (s saver) hint(ctx context.Context, why reason, change func(*Position)) {
	f := s.f
	if s.durable == nil || f.progress.cancelled() {
		return
	}
	p := s.position(why.String())
	change(&p)
	s.keep(ctx, p)
}

// leaving saves the step at which an interrupted fiber continues. An error does not stop the fiber. If a restart
// interrupted a wait and its step has not run since, the saved position remains valid.
func (s saver) leaving() {
	if s.durable != nil && s.cutShort() == noWait {
		s.keep((*carrier)(s.f), s.position(Moved.String()))
	}
}

// keep saves a position. It logs and counts an error.
func (s saver) keep(ctx context.Context, p Position) {
	f := s.f
	if err := s.writeIfNew(ctx, p); err != nil {
		f.e.lost.Add(1)
		f.e.log.WarnContext(ctx, "cannot save position", "key", f.key, "path", f.path(), "reason", p.Reason, "error", err)
	}
}

// ended clears the position of a completed fiber. It marks the position of any other ended fiber as ended, for Undo. A
// fiber that ends with cause ErrClosed or ErrInterrupted keeps its position, to resume later. A fiber that never began
// has none.
func (s saver) ended(status Status, err error) {
	f, x := s.f, s.f.x.Load()
	if s.durable == nil || !f.begun {
		return
	}
	if (status == Cancelled || status == Moved) && (f.is(x.cause, ErrClosed) || f.is(x.cause, ErrInterrupted)) {
		s.left = true
		return
	}
	var failed error
	if status == Completed {
		if !s.dirty {
			return
		}
		failed = f.guard(func() error {
			ctx, cancel := context.WithTimeout((*carrier)(f), saveTimeout)
			defer cancel()
			return s.store.Clear(ctx, f.key)
		})
	} else if len(f.flow.def.steps) > 0 {
		p := s.position(status.String())
		p.Ended, p.Err, p.TimedOut, p.Back = true, brief(err.Error()), f.is(err, ErrTimeout), nil
		if f.step().detour && len(x.back) > 0 { // Undo knows only the line
			p.Step = s.pathOf(x.back[0].pc)
		}
		failed = s.write((*carrier)(f), p)
	}
	if failed != nil {
		f.e.lost.Add(1)
		f.e.log.Warn("cannot save end of fiber", "key", f.key, "path", f.path(), "error", failed)
	}
}

// cutShort returns the wait that the restart interrupted, if no step has run since.
func (s saver) cutShort() cutWait {
	if s.cut.pc == s.f.progress.pc {
		return s.cut
	}
	return noWait
}

func (s saver) forgetCut() {
	if s.durable != nil {
		s.cut = noWait
	}
}

// position returns the position of the fiber in its current step.
func (s saver) position(reason string) Position {
	f, x := s.f, s.f.x.Load()
	def := f.flow.def
	p := Position{
		Flow: def.name, Version: def.version, Generation: s.generation, Step: f.step().path, Reason: reason,
		Attempt: int(f.progress.attempt), Begun: s.wall(f.progress.began), Started: s.wall(f.progress.entered),
		Checkpoint: x.checkpoint, Token: f.runToken(), Trace: f.traceParent(),
	}
	for _, b := range x.back {
		p.Back = append(p.Back, s.place(b))
	}
	cut := s.cutShort() // still in effect
	if p.Else = s.pathOf(cut.orElse); cut.deadline > 0 {
		p.Deadline = s.wall(cut.deadline)
	}
	p.Reached = s.furthest(def, def.index[p.cameTo()])
	if err := x.led(); err != nil {
		p.Err, p.TimedOut = brief(err.Error()), f.is(err, ErrTimeout)
	}
	return p
}

// place returns b as positions store it.
func (s saver) place(b back) Place {
	return Place{Step: s.pathOf(b.pc), Attempt: int(b.attempt), Started: s.wall(b.entered)}
}

// pathOf returns the path of a step as positions store it.
func (s saver) pathOf(pc int32) string {
	if pc == none {
		return ""
	}
	return s.f.flow.def.steps[pc].path
}

// wall returns a time as positions store it.
func (s saver) wall(t int64) time.Time { return s.f.e.wall(t).Round(0).UTC() }

// writeIfNew saves a position unless it equals the last one saved. A difference in Trace alone does not count.
func (s saver) writeIfNew(ctx context.Context, p Position) error {
	last := s.last
	last.Trace = p.Trace
	if s.saved && reflect.DeepEqual(p, last) {
		return nil
	}
	return s.write(ctx, p)
}

func (s saver) write(ctx context.Context, p Position) error {
	f := s.f
	s.dirty = true
	err := f.guard(func() error {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		return s.store.Save(ctx, f.key, p)
	})
	if errors.Is(err, ErrOvertaken) {
		f.Handle().Cancel(ErrOvertaken)
	}
	if err != nil {
		return fmt.Errorf("cannot save position: %w", err)
	}
	s.last, s.saved, s.tries = p, true, 0
	s.covered = max(s.covered, f.flow.def.reached(p))
	return nil
}
