package flow

import (
	"crypto/rand"
	"time"
)

// currentPosition returns the position of f in its current step. Like the other functions of this file, it changes
// nothing, except that f gets an identifier of its run. It is for the worker that runs f.
func currentPosition(f *fiber, j *journal, reason string) Position {
	x, def := f.x.Load(), f.flow.def
	p := Position{
		Flow: def.name, Version: def.version, Generation: j.generation, Step: f.step().path, Reason: reason,
		Attempt: int(f.progress.attempt), Begun: savedTime(f, f.progress.began), Started: savedTime(f, f.progress.entered),
		Checkpoint: x.checkpoint, Token: runToken(f), Trace: x.trace.recorded(),
	}
	for _, b := range x.back {
		p.Back = append(p.Back, savedPlace(f, b))
	}
	cut := j.cutShort() // still in effect
	if p.Else = def.path(cut.orElse); cut.deadline > 0 {
		p.Deadline = savedTime(f, cut.deadline)
	}
	p.Reached = j.furthest(def, def.index[p.cameTo()])
	if err := x.led(); err != nil {
		p.Err, p.TimedOut = brief(err.Error()), matches(err, ErrTimeout)
	}
	return p
}

// savedPlace returns b as positions store it.
func savedPlace(f *fiber, b back) Place {
	return Place{Step: f.flow.def.path(b.pc), Attempt: int(b.attempt), Started: savedTime(f, b.entered)}
}

// savedTime returns a time as positions store it.
func savedTime(f *fiber, t int64) time.Time { return f.e.time.wall(t).Round(0).UTC() }

// runToken returns the identifier of the run. That of a durable fiber survives restarts.
func runToken(f *fiber) string {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	x := f.ext()
	if x.token == "" {
		x.token = rand.Text()
	}
	return x.token
}
