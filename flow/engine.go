package flow

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/inherit"
)

// EngineOptions tunes an Engine; the zero value works.
type EngineOptions struct {
	Workers  int           // fibers running (not parked) at a time; default 64
	PerGroup int           // of them, at most this many of one group; default no limit
	Backstop time.Duration // between live checks of a wait that does not say; default 30 s, negative never
	Grace    time.Duration // until a predecessor that does not stop is logged, and after twice the time, and so on; default 30 s, negative never

	Epoch     uint64       // fibers get higher ones; with leader election give the term shifted left by 32
	clock     timeSource   // default the system's
	Logger    *slog.Logger // default that of the host, see InheritLogger, or none
	Tracer    trace.Tracer // a span per fiber and step; default that of the host, see InheritTracerProvider, or none
	Labels    bool         // pprof labels flow, step and key on running steps; they cost about a microsecond
	Providers []Provider   // found by Use in every fiber

	// Hook, if set, is called on the worker right before and after the code of each step, with the fiber's path. A
	// panic of it counts as one of the step. It is for tests, which stop or crash a fiber there.
	Hook func(h Handle, path string, after bool)
}

// Engine runs fibers. Make it with NewEngine, end it with Close. It is safe for concurrent use. It holds no goroutine
// before the first fiber is started; later it holds up to Workers of them.
type Engine struct {
	opt   EngineOptions
	clock timeSource
	zero  time.Time // the engine's time starts here
	log   *slog.Logger
	slot  inherit.Slot   // of log
	wg    sync.WaitGroup // workers, alarms, reports

	traces atomic.Pointer[trace.Tracer] // nil: none are made

	// mu guards everything below and the scheduling fields of fibers. It is never held while user code runs. The only
	// lock taken within it is that of a fiber's progress.
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
	durable bool          // starts without Positions are refused
	closed  bool          // starts are refused
	halted  bool          // workers leave
	empty   chan struct{} // closed when no fiber is left; made by those who wait

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

// InheritLogger has an engine that was made without a Logger log where its host does. The first one counts; nil changes
// nothing. The fairlead runtime calls it for the engines that it looks after, and for those of its controllers.
func (e *Engine) InheritLogger(log *slog.Logger) {
	if e.made() {
		e.slot.Take(log)
	}
}

// RequireDurable has Start refuse fibers without Positions from now on, with ErrNotDurable: they could not go on in
// another process. The fairlead runtime calls it where replicas share the objects.
func (e *Engine) RequireDurable() {
	if e.made() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.durable = true
	}
}

// Closed says whether Drain or Close was called. The engine then starts nothing.
func (e *Engine) Closed() bool {
	if !e.made() {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// made says whether NewEngine has made the engine. One that it has not made runs nothing, and is closed.
func (e *Engine) made() bool { return e != nil && e.live != nil }

// now is the engine's time, in nanoseconds.
func (e *Engine) now() int64 {
	if e.clock == (systemClock{}) {
		return int64(time.Since(e.zero))
	}
	return int64(e.clock.Now().Sub(e.zero))
}

// wall turns the engine's time into wall-clock time; since turns it back.
func (e *Engine) wall(t int64) time.Time { return e.zero.Add(time.Duration(t)) }

func (e *Engine) since(t time.Time) int64 { return max(1, int64(t.Sub(e.zero))) }

// add makes f live. Under mu.
func (e *Engine) add(f *fiber) {
	e.lastID++
	f.id = e.lastID
	f.prev, f.next = e.live.prev, e.live
	f.prev.next, f.next.prev = f, f
	e.nlive++
}

// remove ends the life of f. Under mu.
func (e *Engine) remove(f *fiber) {
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
	if e.nlive--; e.nlive == 0 && e.empty != nil {
		close(e.empty)
		e.empty = nil
	}
}
