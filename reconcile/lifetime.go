package reconcile

import (
	"context"
	"sync"
	"time"
)

// lifetime is the time between the start and the end of a controller. A permanent failure ends it early. The zero value
// is a controller that has not started.
type lifetime struct {
	mu      sync.Mutex
	run     context.Context         //nolint:containedctx // nil before start, and after stop
	end     context.CancelCauseFunc // ends run
	grace   *time.Timer             // ends run after failGrace; set by fail
	problem error                   // of the last attempt to start
	ended   bool                    // the controller will not start again
}

// failGrace is how long a controller that has failed waits before it ends itself. If its host stops meanwhile, there is
// no failure.
const failGrace = time.Second

// start begins an attempt to start. end ends the context run.
func (l *lifetime) start(run context.Context, end context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, l.end = run, end
}

// started records the outcome of an attempt to start.
func (l *lifetime) started(problem error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = problem
}

// fail ends a controller that can no longer work, after failGrace. It returns false if the controller is already ending
// or does not run.
func (l *lifetime) fail(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == nil || l.run.Err() != nil || l.grace != nil {
		return false
	}
	end := l.end
	l.grace = time.AfterFunc(failGrace, func() { end(err) })
	return true
}

// stop ends an attempt, or the work after it.
func (l *lifetime) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, l.end = nil, nil
	if l.grace != nil {
		l.grace.Stop()
	}
}

// over records that the controller will not start again.
func (l *lifetime) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// phase is a snapshot of a lifetime.
type phase struct {
	running  bool // between start and stop
	stopping bool // running, and its context has ended
	ended    bool
	problem  error // of the last attempt to start
}

func (l *lifetime) phase() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return phase{
		running: l.run != nil, stopping: l.run != nil && l.run.Err() != nil, ended: l.ended, problem: l.problem,
	}
}
