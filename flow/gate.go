package flow

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// The gate: gates maps each key to its newest live fiber, and fibers of a key stand in a chain: pred is the one before, succ
// the one after. Only the first of the chain runs. A fiber in the middle that ends, having been cancelled while it waited,
// leaves the chain; so A, B, C in quick succession becomes A, C, and C never starts beside A.

// passGate puts f into the chain of its key, or refuses it; wait tells that another one is before it. Under mu.
func (e *Engine) passGate(f *fiber, opt StartOptions, calls *cancels) (wait bool, err error) {
	e.epoch++
	f.epoch = e.epoch
	if f.key == "" {
		if opt.IfCurrent.f != nil {
			return false, ErrNotCurrent
		}
		return false, nil
	}
	cur := e.gates[f.key]
	if opt.IfCurrent.f != nil && (cur == nil || opt.IfCurrent.f.root() != cur) {
		return false, ErrNotCurrent
	}
	if cur == nil {
		e.gates[f.key] = f
		return false, nil
	}
	switch opt.Mode {
	case SkipIfBusy:
		if opt.IfCurrent.f == nil {
			return false, ErrBusy
		}
	case Coalesce:
		for p := cur; p != nil && !p.begun; p = p.pred() {
			e.cancel(p, ErrCoalesced, calls)
		}
	default:
		for p := cur; p != nil; p = p.pred() {
			if e.cancel(p, ErrPreempted, calls) {
				e.preempt.Add(1)
			}
		}
	}
	e.gates[f.key] = f
	x := f.ext()
	x.pred = cur
	cur.ext().succ = f
	if x.grace = opt.Grace; x.grace == 0 {
		x.grace = e.opt.Grace
	}
	if x.durable != nil {
		x.durable.fresh, x.durable.dirty = true, true // its predecessor's position is not its own
	}
	return true, nil
}

func (f *fiber) pred() *fiber {
	if x := f.x.Load(); x != nil {
		return x.pred
	}
	return nil
}

// leaveGate takes f, whose code has returned, out of the chain of its key, and wakes the successor if that is first now.
// Under mu.
func (e *Engine) leaveGate(f *fiber) {
	if f.key == "" || f.join != nil {
		return
	}
	var pred, succ *fiber
	left := false
	if x := f.x.Load(); x != nil {
		left = x.durable != nil && x.durable.left
		pred, succ = x.pred, x.succ
		x.pred, x.succ = nil, nil
	}
	if pred != nil {
		pred.x.Load().succ = succ
	}
	switch {
	case succ != nil:
		next := succ.x.Load()
		next.pred = pred
		if left && next.durable != nil {
			next.durable.fresh = false // it goes on where this one was
		}
		if pred == nil {
			e.pokeLocked(succ, pokeGate)
		}
	case pred != nil:
		e.gates[f.key] = pred
	default:
		delete(e.gates, f.key)
	}
}

// Stuck tells of a fiber that waits at the gate for one that does not stop.
type Stuck struct {
	Waiting Info
	Holder  Info          // the fiber that was cancelled and has not returned
	For     time.Duration // how long it has been waited for
	Stack   string        // of the goroutines that run the holder's code, its children included; empty if it runs none
}

// overdue arranges for f, whose predecessor has not stopped within the grace, to be reported. Under mu.
func (e *Engine) overdue(f *fiber, now int64) {
	x := f.x.Load()
	if x.pred == nil {
		return
	}
	waited := time.Duration(now - f.began)
	e.setTimer(f, now+int64(waited))
	holder := x.pred
	for holder.pred() != nil {
		holder = holder.pred()
	}
	if !holder.cancelled.Load() {
		return // it is waited for, not asked to stop
	}
	e.stuck.Add(1)
	s := Stuck{Waiting: e.info(f), Holder: e.info(holder), For: waited}
	var workers []goroutine.ID
	e.goroutines(holder, &workers)
	e.wg.Go(func() {
		s.Stack = goroutine.Stacks(workers...)
		e.log.Error("predecessor does not stop", "key", s.Holder.Key, "path", s.Holder.Path, "epoch", s.Holder.Epoch,
			"waiting", s.Waiting.Path, "for", s.For, "stack", s.Stack)
		if e.opt.OnStuck == nil {
			return
		}
		if err := f.guard(func() error { e.opt.OnStuck(s); return nil }); err != nil {
			e.log.Error("OnStuck panicked", "error", err)
		}
	})
}

// goroutines collects the workers that run f or its children. Under mu.
func (e *Engine) goroutines(f *fiber, to *[]goroutine.ID) {
	if f.worker > 0 {
		*to = append(*to, e.workers[f.worker-1].goroutine)
	}
	if f.state == Parked && f.why == whyFork {
		for _, c := range f.park.fork.kids {
			if c != nil {
				e.goroutines(c, to)
			}
		}
	}
}
