package flow

import (
	"strings"
	"time"
)

// durable is what a fiber with Positions remembers. It belongs to the worker that runs the fiber; the gate writes fresh
// while the fiber waits there.
type durable struct {
	store      Positions
	generation int64
	timeout    time.Duration
	fresh      bool     // not to be resumed: another fiber of the key was alive
	left       bool     // what is saved is left to be resumed
	saved      bool     // last is known
	dirty      bool     // something may be stored under the key
	tries      int32    // failed loads, or saves before a step that has an Undo
	last       Position // as saved
	cut        cutWait
	reached    int32 // the furthest step that this run or an earlier one of the key has come to
	covered    int32 // the furthest step that what is stored says
}

// cutWait is a wait that a restart has cut short: the step that returned it runs again, and waits no longer than it
// would have.
type cutWait struct {
	pc       int32 // the step, none if there is no such wait
	orElse   int32
	deadline int64 // of the await, 0 none
}

var noWait = cutWait{pc: none, orElse: none}

// furthest is what a position that is saved at step to says in Reached.
func (d *durable) furthest(of *def, to int32) string {
	if d.reached <= to || of.forward != nil {
		return ""
	}
	return of.steps[d.reached].path
}

// reached is the furthest step with an Undo, or one after it, that the runs of a saved position have come to: it is
// saved before each of those steps. The steps of this one cannot tell what another flow or version has done: then all
// of it is undone.
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

// cameTo is the step of the line that the fiber had come to: the one that it left for a detour, or by a delay that is
// not over.
func (p *Position) cameTo() string {
	switch {
	case len(p.Back) > 0:
		return p.Back[0].Step
	case p.Left != nil:
		return p.Left.Step
	}
	return p.Step
}

// maxError is how much of the text of an error is kept, in bytes.
const maxError = 1024

// brief cuts a text that would make a position large.
func brief(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
