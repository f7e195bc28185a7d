package flow

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// durable is what a fiber with Positions remembers.
type durable struct {
	store      Positions
	generation int64
	timeout    time.Duration
	fresh      bool     // not to be resumed: another fiber of the key was alive
	tries      int      // failed loads, or saves before a step that has an Undo
	last       Position // as saved
	saved      bool
	dirty      bool  // something may be stored under the key
	deadline   int64 // of the await of the step resumed at
	resumedAt  int32
	reached    int32 // the furthest step that this run or an earlier one of the key has come to
	covered    int32 // the furthest step that what is stored says
}

// reasonSave marks a save before a step marked Save.
const reasonSave = "save"

// saveTimeout bounds one call of Positions.
const saveTimeout = 10 * time.Second

// load finds out where a durable fiber begins.
func (r *run) load() move {
	f, d := r.f, r.f.x.Load().durable
	d.resumedAt, d.reached, d.covered = none, none, none
	start := move{kind: moveEnter, to: f.resume}
	var pos Position
	var found bool
	err := f.guard(func() (err error) {
		ctx, cancel := context.WithTimeout(r.ctx, saveTimeout)
		defer cancel()
		pos, found, err = d.store.Load(ctx, f.key)
		return err
	})
	if err != nil {
		return r.loadLater(err)
	}
	if !found {
		return start
	}
	d.dirty = true
	def := f.flow.def
	if def.forward != nil && pos.Flow == def.forward.name {
		from := pos.Step
		if pos.Reached != "" {
			from = pos.Reached
		}
		if i, ok := def.from(from); ok && pos.Version == def.version {
			start.to = i
		}
		r.adopt(pos)
		return start
	}
	d.reached = def.reached(pos)
	d.covered = d.reached
	i, known := def.index[pos.Step]
	if def.forward != nil && pos.Flow == def.name && pos.Version == def.version && known && (pos.Ended || d.fresh || pos.Generation != d.generation) {
		// An undoing that failed, or was cancelled: what it has undone stays undone, and what was never done needs none.
		r.adopt(pos)
		start.to = i
		return start
	}
	if d.fresh || pos.Ended || pos.Flow != def.name || pos.Version != def.version || pos.Generation != d.generation || !known {
		r.e.log.Info("position is not resumed", "key", f.key, "flow", def.name, "version", def.version, "saved", pos.Flow,
			"savedVersion", pos.Version, "step", pos.Step, "ended", pos.Ended)
		return start
	}
	return r.resumeAt(i, pos)
}

// reached is the furthest step with an Undo, or one after it, that the runs of a saved position have come to: it is saved before each of
// those steps. What another flow or version has done cannot be told by steps of this one: then all of it is to be undone.
func (d *def) reached(pos Position) int32 {
	if pos.Flow != d.name || pos.Version != d.version {
		return int32(len(d.steps) - 1)
	}
	furthest := none
	for _, path := range []string{pos.Step, pos.Reached} {
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

// furthest is what a position that is saved at step to says in Reached.
func (d *durable) furthest(def *def, to int32) string {
	if d.reached <= to || def.forward != nil {
		return ""
	}
	return def.steps[d.reached].path
}

// loadLater tries to load again after a while: to begin without the position might make an effect outside twice.
func (r *run) loadLater(err error) move {
	f, d := r.f, r.f.x.Load().durable
	d.tries++
	r.e.log.Warn("cannot load position", "key", f.key, "flow", f.flow.def.name, "try", d.tries, "error", err)
	r.e.mu.Lock()
	f.begun = false
	r.e.mu.Unlock()
	if r.tryPark(whyLoad, r.e.now()+int64(Backoff{}.Delay(d.tries)), 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

// adopt takes over what stays the same across restarts.
func (r *run) adopt(pos Position) {
	x := r.f.x.Load()
	x.checkpoint = pos.Checkpoint
	x.token = pos.Token
	x.durable.last, x.durable.saved = pos, true
}

// resumeAt goes on at step i where the position was saved.
func (r *run) resumeAt(i int32, pos Position) move {
	f, x, d := r.f, r.f.x.Load(), r.f.x.Load().durable
	r.adopt(pos)
	f.mu.Lock()
	f.began = r.past(pos.Begun)
	f.pc = i // where it is if it is cancelled before it goes on
	f.mu.Unlock()
	if d.timeout > 0 {
		x.deadline = plus(f.began, d.timeout)
	}
	if !pos.Deadline.IsZero() {
		d.deadline, d.resumedAt = r.e.since(pos.Deadline), i
	}
	m := move{kind: moveRepeat, to: i, attempt: int32(min(max(pos.Attempt, 0), 1<<30)), entered: r.past(pos.Started)}
	if !pos.Wake.After(r.e.clock.Now()) {
		return m
	}
	r.enter(m)
	f.resume, f.wake = i, r.e.since(pos.Wake)
	why := whyDelay
	if pos.Reason == whyRetry.String() {
		why = whyRetry
		f.attempt = max(f.attempt, 1) - 1 // picking up counts it
	}
	if r.tryPark(why, r.earliest(f.wake), 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

// past is a time that was saved, which an absent or a future one cannot be.
func (r *run) past(t time.Time) int64 {
	if at := r.e.since(t); !t.IsZero() && at < r.now {
		return at
	}
	return r.now
}

// savedDeadline returns, once, the deadline of the await that the position was saved in.
func (r *run) savedDeadline() int64 {
	x := r.f.x.Load()
	if x == nil || x.durable == nil || x.durable.deadline == 0 || x.durable.resumedAt != r.f.pc {
		return 0
	}
	at := x.durable.deadline
	x.durable.deadline = 0
	return at
}

// savePark saves where the fiber parks. It is a hint: if it is lost, the fiber goes on.
func (r *run) savePark(to, attempt int32, why reason, wake, deadline int64) {
	x := r.f.x.Load()
	if x == nil || x.durable == nil || r.f.cancelled.Load() {
		return
	}
	if err := r.save(to, why.String(), wake, deadline, false, attempt); err != nil {
		r.e.lost.Add(1)
		r.e.log.Warn("cannot save position", "key", r.f.key, "path", r.f.path(), "reason", why.String(), "error", err)
	}
}

// save records that the fiber goes on at step to; always even if nothing has changed.
func (r *run) save(to int32, reason string, wake, deadline int64, always bool, attempt ...int32) error {
	f, x := r.f, r.f.x.Load()
	def := f.flow.def
	p := Position{
		Flow: def.name, Version: def.version, Generation: x.durable.generation, Reason: reason,
		Attempt: int(f.attempt), Begun: r.saved(f.began), Checkpoint: x.checkpoint, Token: f.runToken(),
	}
	if len(attempt) > 0 {
		p.Attempt = int(attempt[0])
	}
	entered := f.entered
	if to != f.pc {
		entered = r.now
	}
	if f.step().detour && len(x.back) > 0 { // the way back would be lost: the step that it was left from runs again
		b := x.back[0]
		to, entered, p.Attempt = b.pc, b.entered, int(b.attempt)
	}
	p.Step, p.Started = def.steps[to].path, r.saved(entered)
	p.Reached = x.durable.furthest(def, to)
	if wake > 0 {
		p.Wake = r.saved(wake)
	}
	if deadline > 0 {
		p.Deadline = r.saved(deadline)
	}
	if x.durable.saved && !always && reflect.DeepEqual(p, x.durable.last) {
		return nil
	}
	return r.write(r.ctx, p)
}

// cover saves the step that the fiber is at unless what is stored says already that it has come so far: what is begun is then known to
// be undone.
func (r *run) cover(reason string) error {
	x := r.f.x.Load()
	if x == nil || x.durable == nil || x.durable.covered >= r.f.pc {
		return nil
	}
	return r.save(r.f.pc, reason, 0, 0, false)
}

// maxCover is how many times it is tried to save a position before a step that has an Undo.
const maxCover = 8

// coverLater runs the step again after a while, up to where it could not be saved, and fails it in the end.
func (r *run) coverLater(err error, orElse int32) move {
	f, d := r.f, r.f.x.Load().durable
	if d.tries++; d.tries >= maxCover {
		d.tries = 0
		return r.fail(err, orElse)
	}
	r.e.log.Warn("cannot save position", "key", f.key, "path", f.path(), "reason", reasonSave, "try", d.tries, "error", err)
	if r.tryPark(whyLoad, r.earliest(r.e.now()+int64(Backoff{}.Delay(d.tries))), 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

func (r *run) write(ctx context.Context, p Position) error {
	f, d := r.f, r.f.x.Load().durable
	d.dirty = true
	err := f.guard(func() error {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		return d.store.Save(ctx, f.key, p)
	})
	if err != nil {
		return fmt.Errorf("cannot save position: %w", err)
	}
	d.last, d.saved, d.tries = p, true, 0
	d.covered = max(d.covered, f.flow.def.reached(p))
	return nil
}

// saved is a time as positions keep it.
func (r *run) saved(t int64) time.Time { return r.e.wall(t).Round(0).UTC() }

// saveEnd clears the position of a completed fiber, and marks that of another one as ended, for Undo. A fiber that ends because
// the engine is closed, or with cause ErrInterrupted, keeps it, to go on after the restart, and one that never began has none.
func (r *run) saveEnd(status Status, err error) {
	f, x := r.f, r.f.x.Load()
	if x == nil || x.durable == nil || !f.begun || (status == Cancelled && (errors.Is(x.cause, ErrClosed) || errors.Is(x.cause, ErrInterrupted))) {
		return
	}
	var failed error
	if status == Completed {
		if !x.durable.dirty {
			return
		}
		failed = f.guard(func() error {
			ctx, cancel := context.WithTimeout((*carrier)(f), saveTimeout)
			defer cancel()
			return x.durable.store.Clear(ctx, f.key)
		})
	} else if len(f.flow.def.steps) > 0 {
		p := Position{
			Flow: f.flow.def.name, Version: f.flow.def.version, Generation: x.durable.generation, Step: f.step().path,
			Reason: status.String(), Attempt: int(f.attempt), Begun: r.saved(f.began), Started: r.saved(f.entered),
			Checkpoint: x.checkpoint, Token: f.runToken(), Ended: true, Err: brief(err.Error()),
		}
		if f.step().detour && len(x.back) > 0 {
			p.Step = f.flow.def.steps[x.back[0].pc].path
		}
		p.Reached = x.durable.furthest(f.flow.def, f.flow.def.index[p.Step])
		failed = r.write((*carrier)(f), p)
	}
	if failed != nil {
		r.e.lost.Add(1)
		r.e.log.Warn("cannot save end of fiber", "key", f.key, "path", f.path(), "error", failed)
	}
}

// maxError is how much of the text of an error is kept, in bytes.
const maxError = 1024

// brief cuts a text that would make a position large.
func brief(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}

// runToken identifies the run, across restarts if it is durable.
func (f *fiber) runToken() string {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	x := f.ext()
	if x.token == "" {
		x.token = rand.Text()
	}
	return x.token
}

// IdempotencyKey returns a key for requests outside that this step makes: the same on each attempt and, for a durable fiber,
// after a restart; another one for each step, child and run.
func (f *fiber) IdempotencyKey() string { return f.root().runToken() + "/" + f.path() }
