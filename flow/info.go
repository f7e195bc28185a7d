package flow

import "time"

// Info is a snapshot of a fiber.
type Info struct {
	ID       uint64 `json:"id"`
	Parent   uint64 `json:"parent,omitzero"` // the ID of the fiber that forked this one
	Flow     string `json:"flow"`
	Key      string `json:"key,omitempty"`
	Group    string `json:"group,omitempty"`
	Subgroup string `json:"subgroup,omitempty"`
	Path     string `json:"path"` // of the step, from the root flow on
	// Step is the path of the step within its own flow, without the forks above it. It is empty before the first step.
	Step     string        `json:"step,omitempty"`
	Epoch    uint64        `json:"epoch"`
	Status   Status        `json:"status"`
	Why      string        `json:"why,omitempty"`  // if parked: gate, delay, retry, suspend, await, fork or load
	Until    time.Time     `json:"until,omitzero"` // if parked: time of the next check without an event
	Attempt  int           `json:"attempt"`
	Began    time.Time     `json:"began"`
	Entered  time.Time     `json:"entered"`  // when the step was first entered
	Since    time.Time     `json:"since"`    // when the status last changed
	For      time.Duration `json:"for"`      // time since then
	Stopping bool          `json:"stopping"` // cancelled, but its code has not returned
	Children int           `json:"children"` // number of live children
	Dropped  int           `json:"dropped"`  // number of entries that the trail has dropped
	Trail    Trail         `json:"trail"`

	def *def
}

// infoOf returns a snapshot of f. The caller holds core.mu.
func infoOf(f *fiber) Info {
	t, root, p, def := &f.e.time, f.root(), f.progress.snapshot(), f.flow.def
	i := Info{
		ID: f.id, Flow: def.name, Key: root.key, Group: f.subgroup.group.name, Subgroup: f.subgroup.name, Epoch: root.epoch,
		Status: f.state, Why: f.why.String(), Stopping: f.progress.cancelled() && !f.state.Ended(),
		Path: f.pathAt(p.pc), Attempt: int(p.attempt), Began: t.wall(p.began), Entered: t.wall(p.entered),
		Since: t.wall(p.since), For: time.Duration(t.now() - p.since),
		Trail: p.trail.entries(def.path), Dropped: int(p.trail.dropped), def: def,
	}
	if f.join != nil {
		i.Parent = f.join.parent.id
	}
	if at := f.e.sched.timer(f); at > 0 {
		i.Until = t.wall(at)
	}
	if f.state == Parked && f.why == whyFork {
		i.Children = f.park.fork.alive
	}
	if p.pc >= 0 && int(p.pc) < len(def.steps) {
		i.Step = def.path(p.pc)
	}
	return i
}
