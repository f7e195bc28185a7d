package flow

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// EngineOptions configures an Engine. The zero value is valid.
type EngineOptions struct {
	// Workers is how many fibers may run (not parked) for another one to begin; default 64. Fibers in Blocking do not
	// count.
	Workers int
	// Requests is the maximum number of fibers that run beside the workers, since they wait for the response to a
	// request (see Blocking); default 512, negative for none.
	Requests int
	PerGroup int           // maximum number of running fibers of one group, in Blocking or not; default no limit
	Backstop time.Duration // default interval between live checks of a wait; default 30 s, negative disables them
	// Grace is how long a fiber waits for a cancelled predecessor before the engine logs an error. The error repeats
	// each time the wait has doubled. The default is 30 s; a negative value disables it.
	Grace time.Duration

	// Epoch is lower than the epoch of every fiber. With leader election, use the term shifted left by 32.
	Epoch  uint64
	clock  timeSource   // default the system clock
	Logger *slog.Logger // default that of the host (see Inherit), or none
	// Tracer makes a span per fiber and step. The default is that of the host (see Inherit), or none.
	Tracer    trace.Tracer
	Labels    bool       // sets the pprof labels flow, step and key on running steps; costs about 1 µs per step
	Providers []Provider // values for Use in every fiber

	// Hook, if set, is called on the worker immediately before and after the code of each step, with the path of the
	// step. A panic of Hook counts as a panic of the step. Tests use it to stop or crash a fiber at a step.
	Hook func(h Handle, path string, after bool)
}

// defaultRequests is the default of EngineOptions.Requests. An API server with default flags serves 600 at a time.
const defaultRequests = 512

// Engine runs fibers. NewEngine makes it and Close ends it. An Engine is safe for concurrent use. It has no goroutine
// before the first fiber starts, and later at most Workers plus Requests goroutines, and those of alarms and reports.
//
// Engine connects its parts: doc.go lists them.
type Engine struct {
	core
	slot   inherit.Slot   // the inherited target of the logger
	wg     sync.WaitGroup // workers, alarms, reports
	spans  fiberSpans
	fibers lifecycle
	interp interpreter
}

// NewEngine returns an engine.
func NewEngine(opt EngineOptions) *Engine {
	if opt.Workers <= 0 {
		opt.Workers = 64
	}
	if opt.Requests == 0 {
		opt.Requests = defaultRequests
	}
	if opt.Backstop == 0 {
		opt.Backstop = 30 * time.Second
	}
	if opt.Grace == 0 {
		opt.Grace = 30 * time.Second
	}
	if opt.clock == nil {
		opt.clock = systemClock{}
	}
	e := &Engine{core: core{time: newTimeline(opt.clock), providers: opt.Providers}}
	log, slot := inherit.Logger(opt.Logger)
	e.slot = slot
	e.spans.start(&e.core, &e.wg, opt.Labels)
	if opt.Tracer != nil {
		e.spans.use(opt.Tracer)
	}
	e.fibers = lifecycle{
		core: &e.core, wg: &e.wg, log: log, spans: &e.spans, grace: opt.Grace, hook: opt.Hook,
		gates: gates{newest: map[string]*fiber{}, epoch: opt.Epoch}, live: newLiveSet(),
	}
	e.fibers.journals = journalEnv{log: log, lost: &e.fibers.lost, host: &e.fibers}
	e.interp = interpreter{
		host: &e.fibers, log: log, backstop: opt.Backstop, queued: &e.sched.queued,
		observed: opt.Hook != nil, spans: &e.spans,
	}
	e.sched.limit, e.sched.maxAway = opt.Workers, max(opt.Requests, 0)
	e.sched.run, e.sched.exited = e.interp.slice, e.fibers.exited
	e.sched.start(&e.core, &e.wg, opt.PerGroup, e.fibers.due)
	return e
}

// made reports whether NewEngine made the engine. Any other engine counts as closed.
func (e *Engine) made() bool { return e != nil && e.sched.run != nil }

// Inherit passes the settings of the host to the engine. The logger and the tracer are for an engine without its own;
// only the first non-nil ones count. A durable engine refuses from now on to start fibers without Positions, with
// ErrNotDurable, since such fibers cannot continue in another process. The fairlead runtime calls Inherit for the
// engines that it runs and for those of its controllers. Call it before fibers start: a fiber that has already started
// may have no spans.
func (e *Engine) Inherit(log *slog.Logger, tp trace.TracerProvider, durable bool) {
	if !e.made() {
		return
	}
	e.slot.Take(log)
	if t := tracing.Tracer(tp, "flow"); t != nil {
		e.spans.use(t)
	}
	if durable {
		e.fibers.requireDurable()
	}
}

// Closed reports whether Drain or Close was called. The engine then starts no fibers.
func (e *Engine) Closed() bool { return !e.made() || e.fibers.refuses() }

// Drain refuses new fibers and waits until the live fibers have ended. It does not cancel them. Drain returns the cause
// of ctx if ctx ends first.
func (e *Engine) Drain(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	e.fibers.refuse(nil)
	return e.fibers.waitEmpty(ctx)
}

// Close refuses new fibers, cancels the live ones with cause ErrClosed, and waits until their callbacks have run. Then
// it stops all goroutines and timers of the engine. If ctx ends first, Close returns an error that matches ErrStuck and
// the cause of ctx, and names the fibers that did not stop. Close may then be called again. It must not be called from
// a step or a callback.
func (e *Engine) Close(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	e.fibers.refuse(ErrClosed)
	if err := e.fibers.waitEmpty(ctx); err != nil {
		return fmt.Errorf("cannot close engine: %w: %v: %w", ErrStuck, pathsOf(e, 5), err)
	}
	e.mu.Lock()
	e.sched.halt()
	e.spans.stop()
	e.mu.Unlock()
	e.wg.Wait()
	return nil
}

// pathsOf returns the paths and keys of live fibers, at most limit.
func pathsOf(e *Engine, limit int) []string {
	var names []string
	for info := range e.Fibers() {
		if len(names) == limit {
			return append(names, "…")
		}
		names = append(names, info.Path+ofKey(info.Key))
	}
	return names
}
