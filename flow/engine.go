package flow

import (
	"context"
	"fmt"
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
	Grace    time.Duration // until a predecessor that does not stop is reported as stuck; default 30 s, negative never

	Epoch     uint64       // fibers get epochs above it: with leader election, the term shifted left by 32, so that terms order too
	Clock     Clock        // default the system's
	Logger    *slog.Logger // default that of the host, see InheritLogger; else none
	Tracer    trace.Tracer // a span per step; default none
	Labels    bool         // pprof labels flow, step and key on running steps; they cost about a microsecond
	Providers []Provider   // found by Use in every fiber

	// OnStuck, if set, is told of each predecessor that did not stop within the grace, and again after twice the time, and so
	// on. It runs in a goroutine of the engine, several at a time if there are several to report.
	OnStuck func(Stuck)
	// Hook, if set, is called on the worker right before and after the code of each step, with the fiber's path. A panic of it
	// counts as one of the step. It is for tests, which stop or crash a fiber there.
	Hook func(h Handle, path string, after bool)
}

// Engine runs fibers. Make it with NewEngine, end it with Close. It is safe for concurrent use. It holds no goroutine before
// the first fiber is started; later it holds up to Workers of them.
type Engine struct {
	opt   EngineOptions
	clock Clock
	zero  time.Time // the engine's time starts here
	log   *slog.Logger
	slot  inherit.Slot   // of log
	wg    sync.WaitGroup // workers, alarms, reports

	// mu guards everything below and the scheduling fields of fibers. It is never held while user code runs. The only lock
	// taken within it is fiber.mu.
	mu      sync.Mutex
	idle    *sync.Cond
	ready   ready
	timers  timers
	gates   map[string]*fiber // the newest fiber of each key
	live    *fiber            // ring of live fibers, around a sentinel
	nlive   int
	nidle   int
	workers []*worker
	flows   registry
	epoch   uint64
	lastID  uint64
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
	if opt.Clock == nil {
		opt.Clock = systemClock{}
	}
	e := &Engine{opt: opt, clock: opt.Clock, epoch: opt.Epoch, gates: map[string]*fiber{}, live: &fiber{}}
	e.log, e.slot = inherit.Logger(opt.Logger)
	e.zero = e.clock.Now().Add(-epochBefore)
	e.idle = sync.NewCond(&e.mu)
	e.live.prev, e.live.next = e.live, e.live
	e.ready.perGroup = opt.PerGroup
	return e
}

// InheritLogger has an engine that was made without a Logger log where its host does. The first one counts; nil changes nothing. The
// fairlead runtime calls it for the engines that it looks after, and for those of its controllers.
func (e *Engine) InheritLogger(log *slog.Logger) {
	if e.made() {
		e.slot.Take(log)
	}
}

// Closed says whether Drain or Close was called: the engine starts nothing any more.
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

// epochBefore is how long before its making the engine's time starts, so that every time it meets, also a saved one, is positive:
// 0 stands for none.
const epochBefore = 50 * 365 * 24 * time.Hour

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

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

// Drain refuses new fibers and waits until the live ones have ended by themselves. It returns the cause of ctx if that ends
// first.
func (e *Engine) Drain(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return e.waitEmpty(ctx)
}

// Close refuses new fibers, cancels the live ones with cause ErrClosed, and waits until their callbacks have run and nothing
// of the engine is left. If ctx ends first, it returns an error that matches ErrStuck and the cause of ctx, and names the
// fibers that did not stop; Close may be called again. It must not be called from a step or a callback.
func (e *Engine) Close(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	var calls cancels
	e.mu.Lock()
	e.closed = true
	for f := e.live.next; f != e.live; f = f.next {
		if !f.isCursor() {
			e.cancel(f, ErrClosed, &calls)
		}
	}
	e.mu.Unlock()
	calls.run()
	if err := e.waitEmpty(ctx); err != nil {
		return fmt.Errorf("cannot close engine: %w: %v: %w", ErrStuck, e.names(5), err)
	}
	e.mu.Lock()
	e.halted = true
	e.nidle, e.workers = 0, nil
	e.timers.stop(&e.wg)
	e.idle.Broadcast()
	e.mu.Unlock()
	e.wg.Wait()
	return nil
}

func (e *Engine) waitEmpty(ctx context.Context) error {
	e.mu.Lock()
	if e.nlive == 0 {
		e.mu.Unlock()
		return nil
	}
	if e.empty == nil {
		e.empty = make(chan struct{})
	}
	empty := e.empty
	e.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) names(limit int) []string {
	var names []string
	for info := range e.Fibers() {
		if len(names) == limit {
			return append(names, "…")
		}
		names = append(names, info.Path+ofKey(info.Key))
	}
	return names
}

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

// cancels are cancel functions to be called once the lock is released: they may wake user code.
type cancels []func()

func (c cancels) run() {
	for _, call := range c {
		call()
	}
}

// cancel asks f to end as cancelled, and says whether that came in time. Under mu.
func (e *Engine) cancel(f *fiber, cause error, calls *cancels) bool {
	if f.sealed || f.cancelled.Load() {
		return false
	}
	f.ext().cause = cause
	f.cancelled.Store(true)
	f.mu.Lock()
	stop := f.cancel
	f.mu.Unlock()
	if stop != nil {
		*calls = append(*calls, func() { stop(cause) })
	}
	if f.state == Parked {
		if f.why == whyFork && f.park.fork.abandon(e, cause, calls) {
			return true // the last child wakes it
		}
		e.makeReady(f)
	}
	return true
}
