package flow

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// EngineOptions configures an Engine. The zero value is valid.
type EngineOptions struct {
	Workers  int           // maximum number of running (not parked) fibers; default 64
	PerGroup int           // maximum number of running fibers of one group; default no limit
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

// Engine runs fibers. NewEngine makes it and Close ends it. An Engine is safe for concurrent use. It has no goroutine
// before the first fiber starts, and later at most Workers goroutines plus those of alarms and reports.
type Engine struct {
	opt   EngineOptions
	clock timeSource
	zero  time.Time // the origin of the engine's time
	log   *slog.Logger
	slot  inherit.Slot   // the inherited target of log
	wg    sync.WaitGroup // workers, alarms, reports

	traces atomic.Pointer[trace.Tracer] // nil if there is no tracer

	// mu guards the fields below and the scheduling fields of fibers. It is never held while user code runs.
	// Of the locks of this package, only progress.mu is taken while mu is held.
	mu      sync.Mutex
	idle    *sync.Cond
	ready   ready
	timers  timers
	spans   openSpans
	gates   map[string]*fiber // the newest fiber of each key
	live    *fiber            // ring of live fibers, around a sentinel
	nlive   int
	nidle   int
	workers []*worker
	flows   registry
	epoch   uint64
	lastID  uint64
	durable bool          // Start refuses fibers without Positions
	closed  bool          // Start refuses all fibers
	halted  bool          // workers exit
	empty   chan struct{} // closed when no fiber is left; created by waitEmpty

	queued  atomic.Int32 // fibers that wait for a worker
	preempt atomic.Uint64
	stuck   atomic.Uint64
	lost    atomic.Uint64 // positions that could not be saved
}

// NewEngine returns an engine.
func NewEngine(opt EngineOptions) *Engine {
	if opt.Workers <= 0 {
		opt.Workers = 64
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
	e := &Engine{opt: opt, clock: opt.clock, epoch: opt.Epoch, gates: map[string]*fiber{}, live: &fiber{}}
	e.log, e.slot = inherit.Logger(opt.Logger)
	if opt.Tracer != nil {
		e.traces.Store(&opt.Tracer)
	}
	e.zero = e.clock.Now().Add(-epochBefore)
	e.idle = sync.NewCond(&e.mu)
	e.live.prev, e.live.next = e.live, e.live
	e.ready.perGroup = opt.PerGroup
	return e
}

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
		e.traces.CompareAndSwap(nil, &t)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.durable = e.durable || durable
}

// Closed reports whether Drain or Close was called. The engine then starts no fibers.
func (e *Engine) Closed() bool {
	if !e.made() {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// made reports whether NewEngine made the engine. Any other engine counts as closed.
func (e *Engine) made() bool { return e != nil && e.live != nil }

// now returns the engine's time in nanoseconds.
func (e *Engine) now() int64 {
	if e.clock == (systemClock{}) {
		return int64(time.Since(e.zero))
	}
	return int64(e.clock.Now().Sub(e.zero))
}

// wall converts the engine's time to wall-clock time. since is the inverse.
func (e *Engine) wall(t int64) time.Time { return e.zero.Add(time.Duration(t)) }

func (e *Engine) since(t time.Time) int64 { return max(1, int64(t.Sub(e.zero))) }

// add adds f to the live fibers. The caller holds mu.
func (e *Engine) add(f *fiber) {
	e.lastID++
	f.id = e.lastID
	f.prev, f.next = e.live.prev, e.live
	f.prev.next, f.next.prev = f, f
	e.nlive++
}

// remove removes f from the live fibers. The caller holds mu.
func (e *Engine) remove(f *fiber) {
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
	if e.nlive--; e.nlive == 0 && e.empty != nil {
		close(e.empty)
		e.empty = nil
	}
}
