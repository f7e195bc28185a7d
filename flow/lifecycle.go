package flow

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// lifecycle starts and ends fibers. It keeps the invariants F1 and F2, which span the gates, the live fibers and the
// scheduler: all of them change under core.mu.
type lifecycle struct {
	*core
	wg    *sync.WaitGroup // counts reports
	log   *slog.Logger
	spans *fiberSpans
	grace time.Duration // default of StartOptions.Grace
	hook  func(h Handle, path string, after bool)

	// Guarded by core.mu.
	gates   gates
	live    liveSet
	flows   registry
	durable bool // start refuses fibers without Positions
	closed  bool // start refuses all fibers

	preempted atomic.Uint64
	stuck     atomic.Uint64
	journals  journalEnv
	lost      atomic.Uint64 // positions that could not be saved
}

// admit reports why the gate refuses a fiber with these options. last is the newest fiber of its key.
func admit(last *fiber, opt *StartOptions) error {
	current := opt.IfCurrent.f
	switch {
	case current != nil && (last == nil || current.root() != last):
		return ErrNotCurrent
	case opt.Mode == SkipIfBusy && last != nil && current == nil:
		return ErrBusy
	}
	return nil
}

// start starts f, unless the gate of its key refuses it. calls are the calls to make after it returns, without locks.
func (l *lifecycle) start(f *fiber, d *def, opt *StartOptions, calls *cancels) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.durable && opt.Positions == nil {
		return ErrNotDurable
	}
	l.gates.number(f)
	last := l.gates.last(f.key)
	if err := admit(last, opt); err != nil {
		return err
	}
	switch opt.Mode {
	case Preempt:
		for p := last; p != nil; p = before(p) {
			if cancel(p, ErrPreempted, calls) {
				l.preempted.Add(1)
			}
		}
	case Coalesce:
		for p := last; p != nil && !p.begun; p = before(p) {
			cancel(p, ErrCoalesced, calls)
		}
	}
	waits := f.key != "" && l.gates.add(f)
	l.sched.join(f, opt.group(), opt.Subgroup)
	l.add(f, d)
	if !waits {
		l.sched.wake(f)
		return nil
	}
	f.journal().queued()
	at := int64(0)
	if grace := cmp.Or(opt.Grace, l.grace); grace > 0 {
		at = plus(f.progress.began, grace)
	}
	l.sched.park(f, whyGate, at)
	return nil
}

// add makes f live. The caller holds mu.
func (l *lifecycle) add(f *fiber, d *def) {
	l.live.add(f)
	f.flow = l.flows.bind(d)
	f.flow.started()
}

// due handles a time of f that has come: a delay or deadline of a parked fiber, the deadline of a running step, or the
// end of the grace at the gate. The caller holds mu.
func (l *lifecycle) due(f *fiber, now int64) {
	switch {
	case f.state == Parked && f.why == whyGate:
		l.overdue(f, now)
	case f.state == Parked:
		l.sched.poke(f, pokeTimer)
	case f.state == Running: // mu keeps this from cancelling the next step
		if stop := f.progress.cancelFunc(); stop != nil {
			stop(ErrTimeout)
		}
	}
}

// overdue reports the first fiber of the key of f if it was cancelled and has not stopped within the grace. The caller
// holds mu.
func (l *lifecycle) overdue(f *fiber, now int64) {
	first := holder(f)
	if first == nil {
		return
	}
	waited := now - f.progress.began
	l.sched.setTimer(f, now+waited)
	if first.progress.cancelled() {
		l.stuck.Add(1)
		reportStuck(l.wg, l.log, f, first, time.Duration(waited))
	}
}

// startChildren starts as many children as the fork allows. The caller holds mu.
func (l *lifecycle) startChildren(j *join) {
	for i, ok := j.next(); ok; i, ok = j.next() {
		c := j.todo[i]
		j.todo[i] = Child{}
		f := c.make()
		f.e, f.join = l.core, j
		f.resume = c.def.first
		f.progress.start(l.time.now())
		x := f.ext()
		x.childName, x.childIndex = c.name, int32(i)
		l.spans.followParent(f, j.parent)
		j.kids[i] = f
		l.sched.joinLike(f, j.parent)
		l.add(f, c.def)
		l.sched.wake(f)
	}
}

// childEnded counts an ended child of a fork, cancels or starts others, and wakes the parent after the last one. The
// caller holds mu.
func (l *lifecycle) childEnded(f *fiber, status Status, err error, calls *cancels) {
	j, x := f.join, f.x.Load()
	j.kids[x.childIndex] = nil
	outcome := childFailed
	switch {
	case status == Completed:
		outcome = childCompleted
	case status == Cancelled && x.cause == errNotNeeded:
		outcome = childNotNeeded
	}
	if j.end(int(x.childIndex), outcome, err) {
		abandon(j, errNotNeeded, calls)
	} else {
		l.startChildren(j)
	}
	if j.alive == 0 {
		j.err = forkError(j)
		l.sched.poke(j.parent, pokeJoin)
	}
}

// seal decides that f ends. It returns false if that was decided before. No event wakes f from now on.
func (l *lifecycle) seal(f *fiber) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.sealed {
		return false
	}
	f.sealed = true
	l.sched.setTimer(f, 0)
	f.seq++
	return true
}

// publish makes the end of f known to the next fiber of its key, to its parent, and to callers of Done and Wait. The
// code of f, its callback included, has returned.
func (l *lifecycle) publish(f *fiber, status Status, err error) {
	var calls cancels
	l.mu.Lock()
	f.park = nil
	l.sched.end(f, status)
	l.live.remove(f)
	if f.key != "" {
		if succ, first := l.gates.remove(f); succ != nil {
			f.journal().handOver(succ.journal())
			if first {
				l.sched.poke(succ, pokeGate)
			}
		}
	}
	f.flow.ended(status)
	l.flows.release(f.flow)
	if x := f.x.Load(); x != nil && x.done != nil {
		close(x.done)
	}
	if f.join != nil {
		l.childEnded(f, status, err, &calls)
	}
	l.mu.Unlock()
	calls.run()
}

// refuse makes start refuse all fibers. It cancels the live ones, unless cause is nil.
func (l *lifecycle) refuse(cause error) {
	var calls cancels
	l.mu.Lock()
	l.closed = true
	if cause != nil {
		for f := range l.live.all() {
			cancel(f, cause, &calls)
		}
	}
	l.mu.Unlock()
	calls.run()
}

// refuses reports whether start refuses all fibers.
func (l *lifecycle) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// requireDurable makes start refuse fibers without Positions.
func (l *lifecycle) requireDurable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = true
}

// find returns the newest live fiber of the key, or nil.
func (l *lifecycle) find(key string) *fiber {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gates.last(key)
}

// count returns the number of live fibers.
func (l *lifecycle) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live.n
}

// waitEmpty waits until no fiber is left. If ctx ends first, it returns the cause of ctx.
func (l *lifecycle) waitEmpty(ctx context.Context) error {
	l.mu.Lock()
	empty := l.live.emptied()
	l.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
