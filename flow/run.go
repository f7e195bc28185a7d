package flow

import (
	"context"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// quantum is how many steps a fiber runs in a row while others wait.
const quantum = 64

// run is a fiber in the hands of a worker, from when it is picked up until it parks, yields or ends.
type run struct {
	e   *Engine
	f   *fiber
	ctx context.Context //nolint:containedctx // it lives exactly as long as the run
	now int64
	// timed tells that a timer ends the context at a deadline of the step or the fiber.
	timed bool
}

// move is what comes next.
type move struct {
	to      int32 // the step to enter, none at the end of the line
	attempt int32
	entered int64 // when it was entered first, if repeated
	err     error // why the fiber has failed
	kind    moveKind
}

type moveKind uint8

const (
	moveEnter  moveKind = iota // enter the step at to
	moveRepeat                 // run it again
	moveStay                   // run the step at pc as it is
	moveEnd                    // the fiber is completed
	moveFailed                 // the fiber has failed
	moveAway                   // the fiber is parked, queued or ended: not ours any more
	moveCancel                 // the fiber was cancelled while it was about to park
)

// slice runs f until it is not ours any more.
func (e *Engine) slice(f *fiber, why reason, poke pokes) {
	r := run{e: e, f: f, now: e.now()}
	m := r.pickUp(why, poke)
	for steps := 0; ; steps++ {
		if f.cancelled.Load() && m.kind != moveAway {
			m.kind = moveCancel
		}
		switch m.kind {
		case moveAway:
			return
		case moveCancel:
			r.end(Cancelled, nil)
			return
		case moveFailed:
			r.end(Failed, m.err)
			return
		case moveEnter, moveRepeat:
			if m.to == none {
				r.end(Completed, nil)
				return
			}
			r.enter(m)
		case moveEnd:
			r.end(Completed, nil)
			return
		}
		if steps >= quantum && e.queued.Load() > 0 {
			m = r.yield()
			continue
		}
		m = r.step()
	}
}

// pickUp turns what the fiber waited for into a move.
func (r *run) pickUp(why reason, poke pokes) move {
	f := r.f
	r.stopContext() // of a suspension
	if why == whyFork && r.childrenLeft() {
		return move{kind: moveAway}
	}
	if f.cancelled.Load() {
		return move{kind: moveCancel}
	}
	r.openContext()
	if r.fiberLate() {
		return move{kind: moveFailed, err: f.inPath(errFiberLate)}
	}
	switch why {
	case whyDelay, whyRetry:
		return r.slept(why)
	case whySuspend:
		return r.resumed(poke)
	case whyAwait:
		return r.awaited()
	case whyFork:
		return r.joined()
	}
	if !f.begun {
		return r.begin()
	}
	return move{kind: moveStay} // after a yield
}

// begin passes the gate: from here on the fiber counts as running.
func (r *run) begin() move {
	f := r.f
	r.e.mu.Lock()
	f.begun = true
	r.e.mu.Unlock()
	r.startTrace()
	if x := f.x.Load(); x != nil && x.durable != nil {
		return r.load()
	}
	return move{kind: moveEnter, to: f.resume}
}

func (r *run) enter(m move) {
	f := r.f
	f.mu.Lock()
	f.pc, f.attempt = m.to, m.attempt
	f.entered = r.now
	if m.kind == moveRepeat {
		f.entered = m.entered
	}
	f.since = r.now
	f.mu.Unlock()
	f.entering = true
	if x := f.x.Load(); x != nil && x.durable != nil {
		if !f.flow.def.steps[m.to].detour { // they stand beside the line, wherever they are written
			x.durable.reached = max(x.durable.reached, m.to)
		}
	}
}

// step runs the step that the fiber is at.
func (r *run) step() move {
	f, st := r.f, r.f.step()
	x := f.x.Load()
	cut := r.cut()
	if late := r.arm(); late != nil {
		if st.onError != none && f.flow.def.steps[st.onError].detour && f.attempt > 0 && cut.pc == none {
			return move{kind: moveFailed, err: f.inPath(late)} // the detour has led back, and would do so for ever
		}
		return r.fail(late, cut.orElse)
	}
	if st.done != nil && f.entering {
		var done bool
		err := f.guard(func() (err error) {
			done, err = st.done(r.ctx, f)
			return err
		})
		if _, panicked := err.(*PanicError); panicked {
			return r.failed(err, none)
		}
		if err != nil {
			return r.fail(err, none)
		}
		if done {
			r.record(opSkip)
			return r.after(none)
		}
	}
	f.entering = false
	if st.save && x != nil && x.durable != nil {
		if err := r.save(r.position(reasonSave), true); err != nil {
			return r.fail(err, none)
		}
	}
	if st.undoes {
		if err := r.cover(reasonSave); err != nil {
			return r.coverLater(err, none)
		}
	}
	n, err := r.call(st)
	r.forgetCut()
	if err != nil {
		r.record(opPanic)
		if f.tokens {
			r.dropToken()
		}
		return r.failed(err, none)
	}
	r.record(n.op)
	return r.apply(n, cut.deadline)
}

// call runs user code; a panic of it is an error.
func (r *run) call(st *step) (n Next, err error) {
	err = r.f.guard(func() error {
		opt := &r.e.opt
		if opt.Hook != nil {
			opt.Hook(Handle{r.f}, r.f.path(), false)
		}
		if opt.Tracer == nil && !opt.Labels {
			n = st.run(r.ctx, r.f)
		} else {
			n = r.traced(st)
		}
		if opt.Hook != nil {
			opt.Hook(Handle{r.f}, r.f.path(), true)
		}
		return nil
	})
	return n, err
}

// guard calls user code, whose panic becomes an error.
func (f *fiber) guard(fn func() error) (err error) {
	if p := protect.Call(func() { err = fn() }); p != nil {
		return &PanicError{Path: f.path(), Key: f.Key(), Value: p.Value, Stack: p.Stack}
	}
	return err
}

// record notes the outcome of a step that has just run.
func (r *run) record(outcome op) {
	f, end := r.f, r.e.now()
	took := end - r.now
	f.mu.Lock()
	f.trail.add(f.pc, outcome, took)
	f.since = end
	f.mu.Unlock()
	f.flow.steps[f.pc].observe(outcome, took)
	r.now = end
}
