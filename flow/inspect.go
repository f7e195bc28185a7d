package flow

import (
	"iter"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/why"
)

// The methods of this file report the state of an engine and of its fibers. They take snapshots of the parts under
// core.mu, and evaluate them without it.

// Fibers yields a snapshot of each live fiber, oldest first. It leaves out fibers that start during the iteration. It
// holds no lock while it yields, so fibers keep running during a long iteration.
func (e *Engine) Fibers() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		e.mu.Lock()
		cursor := e.fibers.live.cursor()
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			cursor.close()
			e.mu.Unlock()
		}()
		var batch []Info
		for {
			batch = batch[:0]
			e.mu.Lock()
			cursor.read(64, func(f *fiber) { batch = append(batch, infoOf(f)) })
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
	return infoOf(h.f)
}

// Find returns the newest live fiber of the key.
func (e *Engine) Find(key string) (Handle, bool) {
	if !e.made() {
		return Handle{}, false
	}
	f := e.fibers.find(key)
	return Handle{f}, f != nil
}

// Live returns the number of live fibers.
func (e *Engine) Live() int {
	if !e.made() {
		return 0
	}
	return e.fibers.count()
}

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
	b := blockageOf(&e.sched)
	at, blocked := b.since()
	if !blocked {
		return since, false
	}
	return e.time.wall(at), true
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
	b := blockageOf(&e.sched)
	return b.keys(&e.sched)
}

// Blocked reports whether the fiber is ready and finds no worker because of a blockage (see [Engine.BlockedSince]).
func (h Handle) Blocked() bool {
	if h.f == nil {
		return false
	}
	e := h.f.e
	e.mu.Lock()
	defer e.mu.Unlock()
	b := blockageOf(&e.sched)
	return h.f.state == Ready && b.holds(h.f.subgroup.group)
}

// Why returns the causes for which the fiber makes no progress, the most direct first. They come from Because, from an
// error after which the step is retried, from the waits, and from the fibers that it waits for. There is no cause if
// the fiber has ended, or has been running for a short time only.
//
// classify maps the error of a step to causes. If classify is nil or returns none, the causes that the error carries
// (why.Because) count. Without those, the cause is that the step failed.
//
// Why may be called at any time and concurrently. Its cost does not depend on the number of fibers in the engine.
func (h Handle) Why(classify func(error) []why.Cause) []why.Cause {
	if h.f == nil {
		return nil
	}
	return causesOf(h.f, classify, 0)
}

// Collector returns the metrics of the engine. The caller registers it.
func (e *Engine) Collector() prometheus.Collector { return collector{&e.core, &e.fibers} }

// DebugHandler serves the live fibers, for /debug/flows. The response has keys and paths, so restrict it to operators.
// The query parameters are:
//
//   - format=json, or an Accept header of application/json, for one JSON object per line;
//   - key, flow and status, to select fibers;
//   - longer=5m, for fibers that have been at one place for more than 5 minutes;
//   - limit, the maximum number of fibers: default 1000, 0 for all.
func (e *Engine) DebugHandler() http.Handler { return debugHandler(e.Fibers) }
