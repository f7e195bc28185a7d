package flow

import "fmt"

// quantum is how many steps a fiber runs in a row while other fibers wait for a worker.
const quantum = 64

// run is the interpreter of a flow. It has the fiber from when a worker picks it up until the fiber parks, yields or
// ends. This file picks up the fiber and runs its steps; outcome.go applies their results. Both produce moves.
type run struct {
	e    *Engine
	f    *fiber
	step stepContext
	now  int64
}

// slice runs f until it is parked, queued or ended. Then f no longer belongs to the worker.
func (e *Engine) slice(f *fiber, why reason, poke pokes, now int64) {
	r := run{e: e, f: f, step: stepContext{f: f}, now: now}
	m := r.pickUp(why, poke)
	for steps := 0; ; steps++ {
		if f.progress.leaving() {
			m = r.leave(m)
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
			f.end(Cancelled, nil, r.now)
			return
		case moveFailed:
			f.end(Failed, m.err, r.now)
			return
		case moveEnd:
			f.end(Completed, nil, r.now)
			return
		case moveEnter, moveRepeat:
			r.enter(m)
		}
		if steps >= quantum && e.queued.Load() > 0 {
			m = r.yield()
			continue
		}
		m = r.runStep()
	}
}

// pickUp returns the first move, which depends on why the fiber was parked.
func (r *run) pickUp(why reason, poke pokes) move {
	f := r.f
	f.stopContext() // of a suspension
	if why == whyFork && f.park.fork.giveUp() {
		return move{kind: moveAway}
	}
	if f.begun {
		f.openTrace(r.now)
	}
	if f.progress.cancelled() {
		return move{kind: moveCancel}
	}
	r.step.open()
	if f.late(r.now) {
		return r.fiberLate()
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
	r.setBegun(true)
	f.openTrace(r.now)
	s := f.saver()
	if s.durable == nil {
		return move{kind: moveEnter, to: f.resume}
	}
	pos, found, err := s.load(r.step.ctx)
	if err != nil {
		return r.loadLater(err)
	}
	if !found {
		return move{kind: moveEnter, to: f.resume}
	}
	m, why := s.begin(pos, r.now)
	if why == whyNone {
		return m
	}
	r.enter(m)
	at := f.untilDeadline(f.wake)
	switch {
	case f.late(r.now):
		return r.fiberLate()
	case at <= r.now:
		return r.slept(why)
	}
	return r.park(why, at)
}

// loadLater parks the fiber, to load the position again later. Beginning without the position could repeat an external
// effect.
func (r *run) loadLater(err error) move {
	f, d := r.f, r.f.durable()
	d.tries++
	f.failing(fmt.Errorf("cannot load position: %w", err), r.e.now())
	r.e.log.Warn("cannot load position", "key", f.key, "flow", f.flow.def.name, "try", d.tries, "error", err)
	r.setBegun(false)
	return r.park(whyLoad, r.e.now()+int64(Backoff{}.Delay(int(d.tries))))
}

func (r *run) setBegun(begun bool) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.f.begun = begun
}

func (r *run) enter(m move) {
	entered := r.now
	if m.kind == moveRepeat {
		entered = m.entered
	}
	r.f.progress.enter(m.to, m.attempt, entered, r.now)
	r.f.entering = true
	r.f.forget(m.kind == moveRepeat)
	r.f.saver().reach(m.to)
}

// runStep runs the current step and applies its result.
func (r *run) runStep() move {
	f, st, s := r.f, r.f.step(), r.f.saver()
	cut := noWait
	if s.durable != nil {
		cut = s.cutShort()
	}
	if late := r.step.arm(r.now); late != nil {
		if st.onError != none && f.flow.def.steps[st.onError].detour && f.progress.attempt > 0 && cut.pc == none {
			return move{kind: moveFailed, err: f.inPath(late)} // the detour would return here again and again
		}
		return r.fail(late, cut.orElse)
	}
	if st.done != nil && f.entering {
		var done bool
		err := f.guard(func() (err error) {
			done, err = st.done(r.step.ctx, f.self)
			return err
		})
		if err != nil {
			return r.failUser(err, none)
		}
		if done {
			r.now = f.noteOutcome(opSkip, r.now)
			return r.follow(none)
		}
	}
	f.entering = false
	if st.save {
		if err := s.beforeStep(r.step.ctx); err != nil {
			return r.fail(err, none)
		}
	}
	if st.undoes {
		if err := s.cover(r.step.ctx, reasonSave); err != nil {
			return r.coverLater(err, none)
		}
	}
	n, err := r.call(st)
	s.forgetCut()
	if err != nil {
		n.op = opPanic
	}
	r.now = f.noteOutcome(n.op, r.now)
	if f.tokens && n.op != opSuspend {
		f.dropToken()
	}
	if err != nil {
		return r.failed(err, none)
	}
	return r.apply(n, cut.deadline)
}

// call runs the code of the step. It returns a panic as an error.
func (r *run) call(st *step) (n Next, err error) {
	f, opt := r.f, &r.e.opt
	err = f.guard(func() error {
		if opt.Hook != nil {
			opt.Hook(Handle{f}, f.path(), false)
		}
		if r.e.tracer() == nil && !opt.Labels {
			n = st.run(r.step.ctx, f.self)
		} else {
			n = f.runTraced(r.step.ctx, st)
		}
		if opt.Hook != nil {
			opt.Hook(Handle{f}, f.path(), true)
		}
		return nil
	})
	return n, err
}

// leave ends an interrupted fiber before it begins a step. A fiber without a further step keeps its outcome.
func (r *run) leave(m move) move {
	f := r.f
	switch {
	case f.progress.cancelled():
		return m
	case (m.kind == moveEnter || m.kind == moveRepeat) && m.to != none:
		r.enter(m)
		f.saver().leaving()
	case m.kind != moveStay:
		return m
	}
	f.Handle().Cancel(f.x.Load().leave)
	return move{kind: moveCancel}
}

// fiberLate fails the fiber because its deadline has passed.
func (r *run) fiberLate() move { return move{kind: moveFailed, err: r.f.inPath(errFiberLate)} }

// park parks the fiber until the given time.
func (r *run) park(why reason, at int64) move {
	if r.tryPark(why, at, 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

// tryPark parks the fiber until it is poked, or until the given time (0: never). It returns false if the fiber was
// cancelled, or poked with one of wake, in the meantime. After true the fiber no longer belongs to the worker.
func (r *run) tryPark(why reason, at int64, wake pokes) bool {
	e, f := r.e, r.f
	if why != whySuspend {
		f.stopContext()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.poke&wake != 0 || e.goes(f) {
		return false
	}
	e.park(f, why, at)
	return true
}

// goes reports whether a fiber that is about to park must end instead. The caller holds mu.
func (e *Engine) goes(f *fiber) bool {
	if f.progress.leaving() {
		e.cancel(f, f.x.Load().leave, &cancels{}) // no step runs, so there is no context to cancel
	}
	return f.progress.cancelled()
}

// yield queues the fiber for a worker.
func (r *run) yield() move {
	r.f.stopContext()
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.f.worker = 0
	r.e.makeReady(r.f)
	return move{kind: moveAway}
}
