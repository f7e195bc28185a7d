package flow

import "time"

// blockedAfter is how long workers stay at the same steps before the engine counts as blocked.
const blockedAfter = time.Minute

// BlockedSince reports whether ready fibers find no worker because the code of steps does not return, and since when.
// The engine is blocked if all workers have been at the same steps for more than a minute. It is also blocked if the
// same holds for all workers that one group may use (EngineOptions.PerGroup), and a fiber of that group is ready. since
// is when the last of these workers began its step. The cost is proportional to the number of workers.
func (e *Engine) BlockedSince() (since time.Time, blocked bool) {
	if !e.made() {
		return since, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.blocked()
	at, blocked := b.last, b.all
	for _, began := range b.groups {
		if !blocked || began < at {
			at, blocked = began, true
		}
	}
	if !blocked {
		return since, false
	}
	return e.wall(at), true
}

// Blocked returns the keys of the fibers in a blockage (see BlockedSince). at has the fibers whose steps do not return.
// behind has the ready fibers that find no worker. The cost is proportional to the number of workers and of these
// fibers.
func (e *Engine) Blocked() (at, behind []string) {
	if !e.made() {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.blocked()
	if !b.all && len(b.groups) == 0 {
		return nil, nil
	}
	for _, w := range e.workers {
		if w.fiber != nil && b.holds(w.fiber.part.group) {
			at = append(at, w.fiber.Key())
		}
	}
	for _, g := range e.ready.groups {
		if !b.holds(g) {
			continue
		}
		for p := g.head; p != nil; p = p.next {
			for f := p.head; f != nil; f = f.qnext {
				behind = append(behind, f.Key())
			}
		}
	}
	return at, behind
}

// Blocked reports whether the fiber is ready and finds no worker because of a blockage (see [Engine.BlockedSince]).
func (h Handle) Blocked() bool {
	if h.f == nil {
		return false
	}
	e := h.f.e
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.blocked()
	return h.f.state == Ready && b.holds(h.f.part.group)
}

// blockage says which workers have been at the same steps for more than blockedAfter. Times are in the engine's time.
type blockage struct {
	all    bool             // all workers are blocked
	last   int64            // when the last of all workers began its step
	groups map[*group]int64 // blocked groups with a ready fiber; the value is when their last worker began its step
}

// holds reports whether a ready fiber of g waits for a blocked worker.
func (b *blockage) holds(g *group) bool {
	_, blocked := b.groups[g]
	return b.all || blocked
}

// blocked returns the current blockage. The caller holds mu.
func (e *Engine) blocked() (b blockage) {
	bound := e.now() - int64(blockedAfter)
	busy := 0
	for _, w := range e.workers {
		if w.fiber == nil {
			continue
		}
		at := w.stepSince()
		busy++
		b.last = max(b.last, at)
		if g := w.fiber.part.group; e.opt.PerGroup > 0 && int(g.running) >= e.opt.PerGroup && g.head != nil {
			if b.groups == nil {
				b.groups = make(map[*group]int64)
			}
			b.groups[g] = max(b.groups[g], at)
		}
	}
	b.all = busy >= e.opt.Workers && b.last < bound
	for g, last := range b.groups {
		if last >= bound {
			delete(b.groups, g)
		}
	}
	return b
}

// stepSince returns when the worker began the step of its fiber. The time in progress is not enough: for a fiber that
// was just picked up it includes the time parked. The caller holds Engine.mu, and the worker has a fiber.
func (w *worker) stepSince() int64 {
	p := &w.fiber.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(w.picked, p.since)
}
