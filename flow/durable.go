package flow

import (
	"strings"
	"time"
)

// durable is the state of a fiber with Positions. It belongs to the worker that runs the fiber. While the fiber waits
// at the gate, the gate writes fresh.
type durable struct {
	store      Positions
	generation int64
	timeout    time.Duration
	fresh      bool     // does not resume, because another fiber of the key was alive
	left       bool     // the saved position is kept for a later fiber to resume
	saved      bool     // last is valid
	dirty      bool     // the store may have a position for the key
	tries      int32    // failed loads, or failed saves before a step with an Undo
	last       Position // the position saved last
	cut        cutWait
	reached    int32 // the furthest step that this run or an earlier run of the key has reached
	covered    int32 // the furthest step that the stored position covers
}

// cutWait is a wait that a restart interrupted. The step that returned the wait runs again, and waits until the
// original deadline.
type cutWait struct {
	pc       int32 // the step, none if there is no such wait
	orElse   int32
	deadline int64 // of the await, 0 none
}

var noWait = cutWait{pc: none, orElse: none}

// furthest returns Position.Reached for a position that is saved at step to.
func (d *durable) furthest(of *def, to int32) string {
	if d.reached <= to || of.forward != nil {
		return ""
	}
	return of.steps[d.reached].path
}

// reached returns the furthest step that the runs of a saved position may have begun. The position is saved before each
// step with an Undo. If the position is of another flow or version, its steps cannot be compared, and reached returns
// the last step so that Undo covers the whole flow.
func (d *def) reached(pos Position) int32 {
	if pos.Flow != d.name || pos.Version != d.version {
		return int32(len(d.steps) - 1)
	}
	furthest := none
	for _, path := range []string{pos.cameTo(), pos.Reached} {
		if path == "" {
			continue
		}
		i, ok := d.index[path]
		if !ok {
			return int32(len(d.steps) - 1)
		}
		furthest = max(furthest, i)
	}
	return furthest
}

// cameTo returns the step of the line that the fiber had reached. In a detour, or during a delay, that is the step that
// it left.
func (p *Position) cameTo() string {
	switch {
	case len(p.Back) > 0:
		return p.Back[0].Step
	case p.Left != nil:
		return p.Left.Step
	}
	return p.Step
}

// maxError is the maximum length of a saved error text, in bytes.
const maxError = 1024

// brief truncates a text to maxError bytes, to keep positions small.
func brief(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
