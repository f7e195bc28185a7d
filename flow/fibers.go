package flow

import (
	"iter"
	"time"
)

// Fibers yields a snapshot of each live fiber, oldest first. It leaves out fibers that start during the iteration. It
// holds no lock while it yields, so fibers keep running during a long iteration.
func (e *Engine) Fibers() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		// A cursor in the ring marks the position while the lock is released.
		cursor := &fiber{state: cursorState}
		e.mu.Lock()
		last := e.lastID
		cursor.prev, cursor.next = e.live, e.live.next
		cursor.prev.next, cursor.next.prev = cursor, cursor
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			cursor.prev.next, cursor.next.prev = cursor.next, cursor.prev
			e.mu.Unlock()
		}()
		var batch []Info
		for {
			batch = batch[:0]
			e.mu.Lock()
			f := cursor.next
			for ; f != e.live && f.id <= last && len(batch) < 64; f = f.next {
				if !f.isCursor() {
					batch = append(batch, e.info(f))
				}
			}
			cursor.prev.next, cursor.next.prev = cursor.next, cursor.prev
			cursor.prev, cursor.next = f.prev, f
			cursor.prev.next, cursor.next.prev = cursor, cursor
			e.mu.Unlock()
			if len(batch) == 0 {
				return
			}
			for _, info := range batch {
				if !yield(info) {
					return
				}
			}
		}
	}
}

// cursorState marks the cursors of Fibers in the ring.
const cursorState Status = 255

func (f *fiber) isCursor() bool { return f.state == cursorState }

// Stuck yields the live fibers that have been at one place, running or parked, for longer than d.
func (e *Engine) Stuck(d time.Duration) iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for info := range e.Fibers() {
			if info.For > d && !yield(info) {
				return
			}
		}
	}
}

// Info returns a snapshot of the fiber. For an ended fiber it has the final status.
func (h Handle) Info() Info {
	if h.f == nil {
		return Info{Status: Completed}
	}
	h.f.e.mu.Lock()
	defer h.f.e.mu.Unlock()
	return h.f.e.info(h.f)
}

// Find returns the newest live fiber of the key.
func (e *Engine) Find(key string) (Handle, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.gates[key]
	return Handle{f}, ok
}

// Live returns the number of live fibers.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nlive
}

// info returns a snapshot of f. The caller holds mu.
func (e *Engine) info(f *fiber) Info {
	now := e.now()
	root := f.root()
	i := Info{
		ID: f.id, Flow: f.flow.def.name, Key: root.key, Group: f.part.group.name, Subgroup: f.part.name, Epoch: root.epoch,
		Status: f.state, Why: f.why.String(), Stopping: f.progress.cancelled() && !f.state.Ended(),
	}
	if f.join != nil {
		i.Parent = f.join.parent.id
	}
	if f.heapAt >= 0 {
		i.Until = e.wall(e.timers.heap[f.heapAt].at)
	}
	if f.state == Parked && f.why == whyFork {
		i.Children = f.park.fork.alive
	}
	p := &f.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	i.Path, i.Attempt, i.def = f.path(), int(p.attempt), f.flow.def
	if pc := p.pc; pc >= 0 && int(pc) < len(i.def.steps) {
		i.Step = i.def.steps[pc].path
	}
	i.Began, i.Entered, i.Since, i.For = e.wall(p.began), e.wall(p.entered), e.wall(p.since), time.Duration(now-p.since)
	i.Trail, i.Dropped = p.trail.entries(f.flow.def), int(p.trail.dropped)
	return i
}
