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
	left       bool     // what is saved is left to be resumed
	tries      int      // failed loads, or saves before a step that has an Undo
	last       Position // as saved
	saved      bool
	dirty      bool // something may be stored under the key
	cut        cutWait
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
	d.cut, d.reached, d.covered = noWait, none, none
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
		from := pos.cameTo()
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
	m, ok := r.resumeAt(i, pos)
	if !ok {
		r.e.log.Info("position is not resumed: the way back from its detour is not known", "key", f.key, "flow", def.name, "step", pos.Step)
		return start
	}
	return m
}

// reached is the furthest step with an Undo, or one after it, that the runs of a saved position have come to: it is saved before each of
// those steps. What another flow or version has done cannot be told by steps of this one: then all of it is to be undone.
func (d *def) reached(pos Position) int32 {
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

// cameTo is the step of the line that the fiber had come to: the one that it left for a detour, or by a delay that is not over.
func (p *Position) cameTo() string {
	switch {
	case len(p.Back) > 0:
		return p.Back[0].Step
	case p.Left != nil:
		return p.Left.Step
	}
	return p.Step
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

// resumeAt goes on at step i, or with the delay that leads there, where the position was saved; false if it cannot.
func (r *run) resumeAt(i int32, pos Position) (move, bool) {
	f, def := r.f, r.f.flow.def
	at := Place{Step: pos.Step, Attempt: pos.Attempt, Started: pos.Started}
	delayed := pos.Left != nil && pos.Reason == whyDelay.String()
	if delayed {
		at = *pos.Left
	}
	back, known := r.way(append(pos.Back[:len(pos.Back):len(pos.Back)], at))
	if !known {
		return move{}, false
	}
	here := back[len(back)-1]
	if back = back[:len(back)-1]; def.steps[here.pc].detour && len(back) == 0 {
		return move{}, false // of a version that did not save the way back
	}
	r.adopt(pos)
	x := f.ext()
	x.back = back
	f.mu.Lock()
	f.began = r.past(pos.Begun)
	f.pc = here.pc // where it is if it is cancelled before it goes on
	f.mu.Unlock()
	d := x.durable
	if d.timeout > 0 {
		x.deadline = plus(f.began, d.timeout)
	}
	if pos.Err != "" {
		x.lastErr = &SavedError{Text: pos.Err, TimedOut: pos.TimedOut}
	}
	m := move{kind: moveRepeat, to: here.pc, attempt: here.attempt, entered: here.entered}
	if !delayed && pos.Reason == whyDelay.String() { // of a version that did not save what was left: the step is entered when the delay is over
		m.entered = r.past(pos.Wake)
	}
	orElse, leads := def.index[pos.Else]
	if !leads {
		orElse = none
	}
	if pos.Wake.IsZero() {
		if d.cut = (cutWait{pc: here.pc, orElse: orElse}); !pos.Deadline.IsZero() {
			d.cut.deadline = r.e.since(pos.Deadline)
		}
		return m, true
	}
	why := whyDelay
	if pos.Reason == whyRetry.String() {
		why = whyRetry
	}
	if !delayed && why == whyDelay && !pos.Wake.After(r.e.clock.Now()) {
		return m, true
	}
	if leads {
		f.park = &parking{orElse: orElse}
	}
	f.resume, f.wake = i, r.e.since(pos.Wake)
	switch {
	case pos.Last, pos.Returns:
		f.resume = none
	case delayed:
	case why == whyRetry:
		m.attempt = max(m.attempt, 1) - 1 // picking up counts it
	default:
		m.entered = f.wake
	}
	r.enter(m)
	switch {
	case r.fiberLate():
		return move{kind: moveFailed, err: f.inPath(errFiberLate)}, true
	case r.earliest(f.wake) <= r.now:
		return r.slept(why), true
	case r.tryPark(why, r.earliest(f.wake), 0):
		return move{kind: moveAway}, true
	}
	return move{kind: moveCancel}, true
}

// way finds the steps of saved places; false if one is not known any more.
func (r *run) way(places []Place) ([]back, bool) {
	var out []back
	for _, p := range places {
		i, ok := r.f.flow.def.index[p.Step]
		if !ok {
			return nil, false
		}
		out = append(out, back{pc: i, attempt: int32(min(max(p.Attempt, 0), 1<<30)), entered: r.past(p.Started)})
	}
	return out, true
}

// place is a step under way, as positions keep it.
func (r *run) place(b back) Place {
	return Place{Step: r.f.flow.def.steps[b.pc].path, Attempt: int(b.attempt), Started: r.saved(b.entered)}
}

// past is a time that was saved, which an absent or a future one cannot be.
func (r *run) past(t time.Time) int64 {
	if at := r.e.since(t); !t.IsZero() && at < r.now {
		return at
	}
	return r.now
}

// cutWait is a wait that a restart has cut short: the step that returned it runs again, and waits no longer than it would have.
type cutWait struct {
	pc       int32 // the step, none if there is no such wait
	orElse   int32
	deadline int64 // of the await, 0 none
}

var noWait = cutWait{pc: none, orElse: none}

// cut returns the wait that the restart has cut short, if nothing has run since.
func (r *run) cut() cutWait {
	if x := r.f.x.Load(); x != nil && x.durable != nil && x.durable.cut.pc == r.f.pc {
		return x.durable.cut
	}
	return noWait
}

func (r *run) forgetCut() {
	if x := r.f.x.Load(); x != nil && x.durable != nil {
		x.durable.cut = noWait
	}
}

// savePark saves that the fiber parks in its step, to run it again after a restart. It is a hint: if it is lost, the fiber goes on.
func (r *run) savePark(attempt int32, why reason, deadline int64, orElse int32) {
	r.saveHint(why, func(p *Position) {
		p.Attempt = int(attempt)
		if deadline > 0 {
			p.Deadline = r.saved(deadline)
		}
		if why == whyRetry {
			p.Wake = r.saved(r.f.wake)
		}
		p.Else = r.elsePath(orElse)
	})
}

// saveDelay saves where the fiber goes on when the delay is over.
func (r *run) saveDelay(then, orElse int32) {
	f, def, to := r.f, r.f.flow.def, r.target(then)
	r.saveHint(whyDelay, func(p *Position) {
		left := r.place(back{pc: f.pc, attempt: f.attempt, entered: f.entered})
		p.Left, p.Attempt, p.Wake, p.Started, p.Else = &left, 0, r.saved(f.wake), r.saved(f.wake), r.elsePath(orElse)
		p.Returns = then == none && f.step().detour
		p.Err, p.TimedOut = "", false
		if p.Last = to == none; !p.Last {
			p.Step = def.steps[to].path
		}
	})
}

// elsePath is where a wait leads to if its deadline passes.
func (r *run) elsePath(to int32) string {
	if to != none {
		return r.f.flow.def.steps[to].path
	}
	return ""
}

func (r *run) saveHint(why reason, change func(*Position)) {
	f := r.f
	if x := f.x.Load(); x == nil || x.durable == nil || f.cancelled.Load() {
		return
	}
	p := r.position(why.String())
	change(&p)
	if err := r.save(p, false); err != nil {
		r.e.lost.Add(1)
		r.e.log.Warn("cannot save position", "key", f.key, "path", f.path(), "reason", why.String(), "error", err)
	}
}

// position is where the fiber is: in its step.
func (r *run) position(reason string) Position {
	f, x := r.f, r.f.x.Load()
	def := f.flow.def
	p := Position{
		Flow: def.name, Version: def.version, Generation: x.durable.generation, Step: f.step().path, Reason: reason, Attempt: int(f.attempt),
		Begun: r.saved(f.began), Started: r.saved(f.entered), Checkpoint: x.checkpoint, Token: f.runToken(),
	}
	for _, b := range x.back {
		p.Back = append(p.Back, r.place(b))
	}
	cut := r.cut() // still waited for
	if p.Else = r.elsePath(cut.orElse); cut.deadline > 0 {
		p.Deadline = r.saved(cut.deadline)
	}
	p.Reached = x.durable.furthest(def, def.index[p.cameTo()])
	if x.lastErr != nil {
		p.Err, p.TimedOut = brief(x.lastErr.Error()), f.is(x.lastErr, ErrTimeout)
	}
	return p
}

// save records a position; always even if nothing has changed.
func (r *run) save(p Position, always bool) error {
	if d := r.f.x.Load().durable; d.saved && !always && reflect.DeepEqual(p, d.last) {
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
	return r.save(r.position(reason), false)
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
	if errors.Is(err, ErrOvertaken) {
		Handle{f}.Cancel(ErrOvertaken)
	}
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
	if x == nil || x.durable == nil || !f.begun {
		return
	}
	if status == Cancelled && (f.is(x.cause, ErrClosed) || f.is(x.cause, ErrInterrupted)) {
		x.durable.left = true
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
		p := r.position(status.String())
		p.Ended, p.Err, p.TimedOut, p.Back = true, brief(err.Error()), f.is(err, ErrTimeout), nil
		if f.step().detour && len(x.back) > 0 { // Undo knows the line only
			p.Step = f.flow.def.steps[x.back[0].pc].path
		}
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
