package flow

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// overdue logs an error if the predecessor of f was cancelled and has not stopped within the grace. The caller holds
// mu.
func (e *Engine) overdue(f *fiber, now int64) {
	x := f.x.Load()
	if x.pred == nil {
		return
	}
	waited := time.Duration(now - f.progress.began)
	e.setTimer(f, now+int64(waited))
	holder := x.pred
	for holder.pred() != nil {
		holder = holder.pred()
	}
	if !holder.progress.cancelled() {
		return // the predecessor was not asked to stop
	}
	e.stuck.Add(1)
	waiting, stuck := e.info(f), e.info(holder)
	var workers []goroutine.ID
	e.goroutines(holder, &workers)
	e.wg.Go(func() {
		e.log.Error("predecessor does not stop", "key", stuck.Key, "path", stuck.Path, "epoch", stuck.Epoch,
			"waiting", waiting.Path, "for", waited, "stack", goroutine.Stacks(workers...))
	})
}

// slowest returns the fiber that has run at one step for longest, among the workers that the group may use. It returns
// nil if no such worker is running. The caller holds mu.
func (e *Engine) slowest(g *group) (slowest *fiber) {
	bounded := e.opt.PerGroup > 0 && int(g.running) >= e.opt.PerGroup
	var since int64
	for _, w := range e.workers {
		f := w.fiber
		if f == nil || f.state != Running || bounded && f.part.group != g {
			continue
		}
		f.progress.mu.Lock()
		at := f.progress.since
		f.progress.mu.Unlock()
		if slowest == nil || at < since {
			slowest, since = f, at
		}
	}
	return slowest
}

// goroutines collects the workers that run f or its children. The caller holds mu.
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
