package flow

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// quantum is how many steps a fiber runs in a row while other fibers wait for a worker.
const quantum = 64

// interpreter runs the steps of fibers. It has no state of its own, so it needs no lock.
type interpreter struct {
	host     host
	log      *slog.Logger
	backstop time.Duration // default interval of live checks
	queued   *atomic.Int32 // fibers that wait for a worker
	observed bool          // the host runs steps by itself
	spans    *fiberSpans   // the host runs steps by itself unless this is off
}

// host carries out what the interpreter decides. Its methods take the locks that they need.
type host interface {
	canceller
	// resume prepares a fiber that a worker has picked up.
	resume(f *fiber, now int64)
	// setBegun records whether the fiber has passed the gate.
	setBegun(f *fiber, begun bool)
	// runStep runs the code of a step, which may panic. It is called only if steps are observed.
	runStep(ctx context.Context, f *fiber, st *step) Next
	// arm makes the context of the running step end at a time (0: never). It reports whether the context had ended
	// before.
	arm(ctx context.Context, f *fiber, at int64) (ended bool)
	// park parks the fiber until it is poked, or until a time (0: never). It returns false if the fiber was cancelled,
	// or poked with one of wake, in the meantime. After true the fiber no longer belongs to the worker, as after yield,
	// end, and true from fork and abandonFork.
	park(f *fiber, why reason, at int64, wake pokes) bool
	// yield queues the fiber for a worker.
	yield(f *fiber)
	// fork parks the fiber until its children in p have ended, and starts them. It returns false if it was cancelled.
	fork(f *fiber, p *parking, at int64) bool
	// abandonFork cancels the live children of the fiber and parks it again. It returns false if no child is alive.
	abandonFork(f *fiber) bool
	// end ends the fiber. began is when its last activity began.
	end(f *fiber, status Status, err error, began int64)
}

// saves keeps the position of a fiber. Its methods do nothing for a fiber without Positions. journal implements it.
type saves interface {
	// restore loads the position, and returns the first move of the fiber. If the reason is not whyNone, the fiber is
	// parked before that move until its wake.
	restore(ctx context.Context, now int64) (first move, why reason, err error)
	// failed counts a failed restore or cover. It reports whether it may be tried again, up to limit times (0: always).
	failed(limit int32) (tries int32, again bool)
	// cutShort returns the wait that a restart interrupted at the current step. It is noWait after forgetCut.
	cutShort() cutWait
	forgetCut()
	// reach records that the fiber enters a step.
	reach(to int32)
	// beforeStep saves before a step with Save, and cover before a step with Undo.
	beforeStep(ctx context.Context) error
	cover(ctx context.Context, reason string) error
	// parked, delayed and interrupted save that the fiber is about to park, to be delayed, or to end early. An error
	// does not stop the fiber.
	parked(ctx context.Context, why reason, attempt int32, deadline int64, orElse int32)
	delayed(ctx context.Context, then, orElse int32)
	interrupted()
}

// run is the interpreter with one fiber, from when a worker picks it up until the fiber parks, yields or ends. This
// file picks up the fiber and runs its steps; outcome.go applies their results. Both produce moves.
type run struct {
	*interpreter
	f     *fiber
	step  stepContext
	saves saves
	// durable says that the fiber has Positions. saves is not called at each step otherwise.
	durable bool
	now     int64
}

// slice runs f until it is parked, queued or ended. Then f no longer belongs to the worker.
func (i *interpreter) slice(f *fiber, why reason, poke pokes, now int64) {
	r := run{interpreter: i, f: f, step: stepContext{f: f}, saves: f.journal(), durable: f.journal() != nil, now: now}
	m := r.pickUp(why, poke)
	for steps := 0; ; steps++ {
		if f.progress.interrupted() {
			m = r.interrupt(m)
		}
		if f.progress.cancelled() && m.kind != moveAway {
			m.kind = moveCancel
		}
		if m.to == none && (m.kind == moveEnter || m.kind == moveRepeat) {
			m.kind = moveEnd
		}
		switch m.kind {
		case moveAway:
			return
		case moveCancel:
			r.host.end(f, Cancelled, nil, r.now)
			return
		case moveFailed:
			r.host.end(f, Failed, m.err, r.now)
			return
		case moveEnd:
			r.host.end(f, Completed, nil, r.now)
			return
		case moveEnter, moveRepeat:
			r.enter(m)
		}
		if steps >= quantum && r.queued.Load() > 0 {
			m = r.yield()
			continue
		}
		m = r.runStep()
	}
}

// pickUp returns the first move, which depends on why the fiber was parked.
func (r *run) pickUp(why reason, poke pokes) move {
	f := r.f
	stopContext(f) // of a suspension
	if why == whyFork && r.host.abandonFork(f) {
		return move{kind: moveAway}
	}
	if f.begun {
		r.host.resume(f, r.now)
	}
	if f.progress.cancelled() {
		return move{kind: moveCancel}
	}
	r.step.open()
	if isLate(f, r.now) {
		return lateFiber(f)
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

// begin marks the fiber as begun and loads its position.
func (r *run) begin() move {
	f := r.f
	r.host.setBegun(f, true)
	r.host.resume(f, r.now)
	if !r.durable {
		return move{kind: moveEnter, to: f.resume}
	}
	m, why, err := r.saves.restore(r.step.ctx, r.now)
	if err != nil {
		return r.restoreLater(err)
	}
	if why == whyNone {
		return m
	}
	r.enter(m)
	at := earlier(f.wake, deadlines(f))
	switch {
	case isLate(f, r.now):
		return lateFiber(f)
	case at <= r.now:
		return r.slept(why)
	}
	return r.park(why, at)
}

// restoreLater parks the fiber, to load the position again later. Beginning without the position could repeat an
// external effect.
func (r *run) restoreLater(err error) move {
	f, now := r.f, r.f.e.time.now()
	tries, _ := r.saves.failed(0)
	noteRetry(f, fmt.Errorf("cannot load position: %w", err), now)
	r.log.Warn("cannot load position", "key", f.key, "flow", f.flow.def.name, "try", tries, "error", err)
	r.host.setBegun(f, false)
	return r.park(whyLoad, now+int64(Backoff{}.Delay(int(tries))))
}

func (r *run) enter(m move) {
	entered := r.now
	if m.kind == moveRepeat {
		entered = m.entered
	}
	r.f.progress.enter(m.to, m.attempt, entered, r.now)
	r.f.entering = true
	clearNotes(r.f, m.kind == moveRepeat)
	if r.durable {
		r.saves.reach(m.to)
	}
}

// runStep runs the current step and applies its result.
func (r *run) runStep() move {
	f, st := r.f, r.f.step()
	cut := noWait
	if r.durable {
		cut = r.saves.cutShort()
	}
	if late := r.step.arm(r.host, r.now); late != nil {
		if st.onError != none && f.flow.def.steps[st.onError].detour && f.progress.attempt > 0 && cut.pc == none {
			return move{kind: moveFailed, err: inPath(f, late)} // the detour would return here again and again
		}
		return r.fail(late, cut.orElse)
	}
	if st.done != nil && f.entering {
		var done bool
		err := guard(f, func() (err error) {
			done, err = st.done(r.step.ctx, f.self)
			return err
		})
		if err != nil {
			return r.failUser(err, none)
		}
		if done {
			r.now = noteOutcome(f, opSkip, r.now)
			return r.follow(none)
		}
	}
	f.entering = false
	if st.save {
		if err := r.saves.beforeStep(r.step.ctx); err != nil {
			return r.fail(err, none)
		}
	}
	if st.undoes {
		if err := r.saves.cover(r.step.ctx, reasonSave); err != nil {
			return r.coverLater(err, none)
		}
	}
	n, err := r.call(st)
	if r.durable {
		r.saves.forgetCut()
	}
	if err != nil {
		n.op = opPanic
	}
	r.now = noteOutcome(f, n.op, r.now)
	if f.tokens && n.op != opSuspend {
		dropToken(f)
	}
	if err != nil {
		return r.failed(err, none)
	}
	return r.apply(n, cut.deadline)
}

// call runs the code of the step. It returns a panic as an error.
func (r *run) call(st *step) (n Next, err error) {
	err = guard(r.f, func() error {
		if r.observed || !r.spans.off() {
			n = r.host.runStep(r.step.ctx, r.f, st)
		} else {
			n = st.run(r.step.ctx, r.f.self)
		}
		return nil
	})
	return n, err
}

// interrupt ends an interrupted fiber before it begins a step. A fiber without a further step keeps its outcome.
func (r *run) interrupt(m move) move {
	f := r.f
	switch {
	case f.progress.cancelled():
		return m
	case (m.kind == moveEnter || m.kind == moveRepeat) && m.to != none:
		r.enter(m)
		r.saves.interrupted()
	case m.kind != moveStay:
		return m
	}
	r.host.cancel(f, f.x.Load().interruption)
	return move{kind: moveCancel}
}

// park parks the fiber until the given time.
func (r *run) park(why reason, at int64) move {
	if r.tryPark(why, at, 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

// tryPark parks the fiber until it is poked, or until the given time (0: never), as host.park does.
func (r *run) tryPark(why reason, at int64, wake pokes) bool {
	if why != whySuspend {
		stopContext(r.f)
	}
	return r.host.park(r.f, why, at, wake)
}

// yield queues the fiber for a worker.
func (r *run) yield() move {
	stopContext(r.f)
	r.host.yield(r.f)
	return move{kind: moveAway}
}
