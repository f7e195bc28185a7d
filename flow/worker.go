package flow

import "github.com/fairlead-io/fairlead/internal/goroutine"

// worker is a goroutine that runs fibers.
type worker struct {
	index     int32
	goroutine goroutine.ID // the ID in stack traces
	fiber     *fiber       // the fiber that it runs; guarded by Engine.mu
	picked    int64        // when it picked up the fiber, in the engine's time; guarded by Engine.mu
}

// makeReady queues f for a worker. The caller holds mu, and f is new, parked or yielding.
func (e *Engine) makeReady(f *fiber) {
	f.state = Ready
	e.timers.remove(f)
	e.ready.push(f)
	e.queued.Add(1)
	if e.nidle > 0 {
		e.nidle-- // for the worker that is woken, so that the next call wakes another one
		e.idle.Signal()
		return
	}
	if len(e.workers) < e.opt.Workers {
		w := &worker{index: int32(len(e.workers))}
		e.workers = append(e.workers, w)
		e.wg.Go(func() { e.work(w) })
	}
}

// poke records an event of f, and queues f if it is parked. The caller holds mu.
func (e *Engine) poke(f *fiber, p pokes) {
	f.poke |= p
	if f.state == Parked {
		e.makeReady(f)
	}
}

// park parks f until it is poked, or until the given time (0: never). The caller holds mu.
func (e *Engine) park(f *fiber, why reason, at int64) {
	f.state, f.why, f.poke, f.worker = Parked, why, 0, 0
	if t := f.tracing(); t != nil {
		t.parked = e.now()
	}
	if at > 0 {
		e.setTimer(f, at)
	} else {
		e.timers.remove(f)
	}
}

// work runs fibers until the engine halts. If user code ends the goroutine (runtime.Goexit, as FailNow of a test does),
// the fiber fails and another goroutine replaces this one.
func (e *Engine) work(w *worker) {
	w.goroutine = goroutine.Current()
	var f *fiber
	var g *group
	left := false
	defer func() {
		if left {
			return
		}
		e.mu.Lock()
		w.fiber = nil
		e.release(g)
		e.mu.Unlock()
		e.wg.Go(func() { e.work(w) })
	}()
	defer func() {
		if !left {
			f.end(Failed, f.inPath(errGoexit), e.now())
		}
	}()
	e.mu.Lock()
	for !e.halted {
		if f = e.ready.pop(); f == nil {
			e.nidle++
			e.idle.Wait()
			continue
		}
		e.queued.Add(-1)
		g = f.part.group
		why, poke := f.why, f.poke
		f.state, f.why, f.poke, f.worker = Running, whyNone, 0, w.index+1
		w.fiber, w.picked = f, e.now()
		now := w.picked
		e.mu.Unlock()
		e.slice(f, why, poke, now)
		e.mu.Lock()
		w.fiber = nil
		e.release(g)
	}
	e.mu.Unlock()
	left = true
}

func (e *Engine) release(g *group) {
	g.running--
	e.ready.turn(g)
}
