package flow

import (
	"iter"
	"time"
)

// Info is a picture of a live fiber.
type Info struct {
	ID       uint64        `json:"id"`
	Parent   uint64        `json:"parent,omitzero"` // of the fiber that forked it
	Flow     string        `json:"flow"`
	Key      string        `json:"key,omitempty"`
	Group    string        `json:"group,omitempty"`
	Subgroup string        `json:"subgroup,omitempty"`
	Path     string        `json:"path"` // where it is
	Epoch    uint64        `json:"epoch"`
	Status   Status        `json:"status"`
	Why      string        `json:"why,omitempty"`  // parked: gate, delay, retry, suspend, await, fork, load
	Until    time.Time     `json:"until,omitzero"` // parked: when it is looked at next without an event
	Attempt  int           `json:"attempt"`
	Began    time.Time     `json:"began"`
	Entered  time.Time     `json:"entered"`  // its step, first
	Since    time.Time     `json:"since"`    // in this status
	For      time.Duration `json:"for"`      // since then
	Stopping bool          `json:"stopping"` // cancelled, and its code has not returned
	Children int           `json:"children"` // alive
	Dropped  int           `json:"dropped"`  // entries that the trail has lost
	Trail    Trail         `json:"trail"`
}

// Fibers yields a picture of each live fiber, oldest first, without those that start meanwhile. It holds no lock while it
// yields, so that a million fibers can be looked at while they run.
func (e *Engine) Fibers() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		// A cursor in the ring keeps the place while the lock is released.
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
			// Move the cursor before f.
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

// cursorState marks the place holders of Fibers in the ring.
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

// Info returns a picture of the fiber; that of one that has ended tells how it ended.
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

// info takes a picture. Under mu.
func (e *Engine) info(f *fiber) Info {
	now := e.now()
	root := f.root()
	i := Info{
		ID: f.id, Flow: f.flow.def.name, Key: root.key, Group: f.part.group.name, Subgroup: f.part.name, Epoch: root.epoch,
		Status: f.state, Why: f.why.String(), Stopping: f.cancelled.Load() && !f.state.Ended(),
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
	f.mu.Lock()
	defer f.mu.Unlock()
	i.Path, i.Attempt = f.path(), int(f.attempt)
	i.Began, i.Entered, i.Since, i.For = e.wall(f.began), e.wall(f.entered), e.wall(f.since), time.Duration(now-f.since)
	i.Trail, i.Dropped = f.trail.entries(f.flow.def), int(f.trail.dropped)
	return i
}
