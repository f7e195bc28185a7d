package flow

import "time"

// blockedAfter is how long workers stay at the same steps before the engine counts as blocked.
const blockedAfter = time.Minute

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

// blockageOf returns the current blockage. The caller holds core.mu.
func blockageOf(s *scheduler) (b blockage) {
	bound := s.time.now() - int64(blockedAfter)
	busy := 0
	for w := range s.busy() {
		// The time of the last progress is not enough: for a fiber that was just picked up it includes the time parked.
		at := max(w.picked, w.f.progress.snapshot().since)
		if !w.away {
			busy++
			b.last = max(b.last, at)
		}
		if g := w.f.subgroup.group; s.queue.waits(g) {
			if b.groups == nil {
				b.groups = make(map[*group]int64)
			}
			b.groups[g] = max(b.groups[g], at)
		}
	}
	b.all = busy >= s.limit && b.last < bound
	for g, last := range b.groups {
		if last >= bound {
			delete(b.groups, g)
		}
	}
	return b
}

// since returns when the blockage began. ok is false if nothing is blocked.
func (b *blockage) since() (at int64, ok bool) {
	at, ok = b.last, b.all
	for _, began := range b.groups {
		if !ok || began < at {
			at, ok = began, true
		}
	}
	return at, ok
}

// keys returns the keys of the fibers in the blockage: those whose steps do not return, and those that are ready. The
// caller holds core.mu.
func (b *blockage) keys(s *scheduler) (at, behind []string) {
	if _, blocked := b.since(); !blocked {
		return nil, nil
	}
	for w := range s.busy() {
		if _, blocked := b.groups[w.f.subgroup.group]; blocked || b.all && !w.away {
			at = append(at, w.f.root().key)
		}
	}
	for f := range s.queue.waiting(b.holds) {
		behind = append(behind, f.root().key)
	}
	return at, behind
}
