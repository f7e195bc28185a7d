package flow

import "time"

// blockedAfter is how long workers stay at the same steps before the engine counts as blocked.
const blockedAfter = time.Minute

// BlockedSince reports whether ready fibers find no worker because the code of steps does not return, and since when.
// That is so if all workers have been at the same steps for more than a minute. It is also so if the workers that one
// group may have at a time (EngineOptions.PerGroup) have been, and a fiber of that group is ready. The time is when
// the last of these workers began its step. BlockedSince costs as much as there are workers.
func (e *Engine) BlockedSince() (since time.Time, blocked bool) {
	if !e.made() {
		return since, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	earliest := e.now() - int64(blockedAfter)
	consider := func(last int64) {
		if last < earliest {
			earliest, blocked = last, true
		}
	}
	busy, last := 0, int64(0)
	groups := map[*group]int64{} // when the last worker of each began its step
	for _, w := range e.workers {
		if w.fiber == nil {
			continue
		}
		g, at := w.fiber.part.group, w.stepSince()
		busy++
		last, groups[g] = max(last, at), max(groups[g], at)
	}
	if busy >= e.opt.Workers {
		consider(last)
	}
	for g, last := range groups {
		if e.opt.PerGroup > 0 && int(g.running) >= e.opt.PerGroup && g.head != nil {
			consider(last)
		}
	}
	if !blocked {
		return since, false
	}
	return e.wall(earliest), true
}

// stepSince returns when the worker began the step of its fiber. A fiber that was just picked up has been at its step
// for as long as it was parked there; the worker has not. Under Engine.mu, with a fiber.
func (w *worker) stepSince() int64 {
	p := &w.fiber.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(w.picked, p.since)
}
