package flow

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// StartOptions configures a fiber. The zero value runs it at once, without a key.
type StartOptions struct {
	// Key names the object of the work, such as "namespace/name". At most one fiber per key runs. A fiber with an empty
	// key passes no gate.
	Key string
	// Mode says what to do when a fiber of the key is alive.
	Mode Mode
	// IfCurrent, if set, makes Start return ErrNotCurrent unless that fiber, or the root fiber that forked it, is the
	// newest of the key. The callback of a fiber uses it to start failure steps.
	IfCurrent Handle
	// Group is the unit of fairness between workers: groups take turns. The default is the key up to its first slash.
	Group string
	// Subgroup divides a group: its subgroups take turns. By default all fibers of a group are in one subgroup.
	Subgroup string
	// OnEnd is called once when the fiber has ended, on a worker, before the next fiber of the key starts. It should be
	// brief and must not wait for fibers.
	OnEnd func(Result)
	// Reported declares that the caller reports a failure of the fiber, in OnEnd or later. The engine then logs the
	// failure at debug level.
	Reported bool
	// From is the path of the step to begin with, as in [Flow.Steps]. For Undo it is the last step that was begun. A
	// position that is resumed takes precedence. The default is the first step; for Undo, the last.
	From string
	// Timeout fails the fiber with ErrTimeout after this time, restarts included. 0 means no limit.
	Timeout time.Duration
	// Grace overrides EngineOptions.Grace for this fiber's wait at the gate.
	Grace time.Duration
	// Providers are values for Use. They precede those of the flow and the engine.
	Providers []Provider
	// Values, if set, supplies values to the contexts of the steps, of the children, and of the calls of Positions. Its
	// cancellation has no effect.
	Values context.Context //nolint:containedctx // only its values, which outlive the start
	// Positions makes the fiber durable under its Key, which must not be empty. The fiber resumes a stored position if
	// no other fiber of the key is alive in this engine. The positions of children are not saved: after a restart an
	// unfinished fork runs again. The steps of its children should have a Done, or use their IdempotencyKey, which does
	// not change.
	Positions Positions
	// Generation is that of the object. A position of another generation is not resumed.
	Generation int64
	// Trace adds links and attributes to the spans of the fiber.
	Trace TraceOptions
}

// Start starts a fiber over packet, which belongs to the fiber until it has ended. ctx is for the start only and does
// not cancel the fiber. If ctx has a span, the span of the fiber is its child. If the fiber begins more than a minute
// later, its span only links to it. The errors are those of Err, ErrInvalid, ErrClosed, ErrBusy, ErrNotCurrent and
// ErrNotDurable.
func (fl *Flow[P]) Start(ctx context.Context, e *Engine, packet *P, opt StartOptions) (Handle, error) {
	d := fl.compiled()
	h, err := e.start(ctx, d, newFiber(packet), opt)
	if err != nil {
		return Handle{}, fmt.Errorf("cannot start %q%s: %w", d.name, ofKey(opt.Key), err)
	}
	return h, nil
}

// Undo starts a fiber that runs the Undo functions of the flow in reverse order. The fiber begins with the furthest
// step that was begun. If opt has Positions with a stored position, the position says which step that is. Otherwise it
// is opt.From, or by default the last step of the flow. The position is reliable, because it is saved before a step
// with an Undo begins.
//
// An Undo that failed, was cancelled or was interrupted continues at its last step when Undo is called again. The name
// of the undo flow is that of the flow with "/undo". Undo of a fork undoes its children.
func (fl *Flow[P]) Undo(ctx context.Context, e *Engine, packet *P, opt StartOptions) (Handle, error) {
	d := fl.compiled()
	if d.err != nil {
		return Handle{}, fmt.Errorf("cannot undo %q%s: %w", d.name, ofKey(opt.Key), d.err)
	}
	h, err := e.start(ctx, d.undo, newFiber(packet), opt)
	if err != nil {
		return Handle{}, fmt.Errorf("cannot undo %q%s: %w", d.name, ofKey(opt.Key), err)
	}
	return h, nil
}

func ofKey(key string) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf(" for %q", key)
}

func (e *Engine) start(ctx context.Context, d *def, f *fiber, opt StartOptions) (Handle, error) {
	if d.err != nil {
		return Handle{}, d.err
	}
	if !e.made() {
		return Handle{}, fmt.Errorf("%w: no engine", ErrInvalid)
	}
	if opt.Timeout < 0 {
		return Handle{}, fmt.Errorf("%w: a timeout of %v", ErrInvalid, opt.Timeout)
	}
	if opt.Mode > SkipIfBusy {
		return Handle{}, fmt.Errorf("%w: mode %d", ErrInvalid, opt.Mode)
	}
	if opt.Positions != nil && opt.Key == "" {
		return Handle{}, fmt.Errorf("%w: positions need a key", ErrInvalid)
	}
	if opt.IfCurrent.f != nil && opt.Key == "" {
		opt.Key = opt.IfCurrent.f.root().key
	}
	first := d.first
	if opt.From != "" {
		var ok bool
		if first, ok = d.from(opt.From); !ok {
			return Handle{}, fmt.Errorf("cannot begin at %q: %w", opt.From, errUnknownStep)
		}
	}
	f.resume = first
	f.e, f.key, f.onEnd, f.reported = e, opt.Key, opt.OnEnd, opt.Reported
	f.progress.start(e.now())
	if len(opt.Providers) > 0 {
		f.ext().providers = opt.Providers
	}
	if opt.Timeout > 0 {
		f.ext().deadline = plus(f.progress.began, opt.Timeout)
	}
	if opt.Values != nil {
		f.ext().values = opt.Values
	}
	if opt.Positions != nil {
		f.ext().durable = &durable{store: opt.Positions, generation: opt.Generation, timeout: opt.Timeout}
	}
	f.followTrace(trace.SpanContextFromContext(ctx), opt.Trace)
	group := opt.Group
	if group == "" {
		group, _, _ = strings.Cut(opt.Key, "/")
	}
	var calls cancels
	defer func() { calls.run() }() // after the lock is released
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return Handle{}, ErrClosed
	}
	if e.durable && opt.Positions == nil {
		return Handle{}, ErrNotDurable
	}
	wait, err := e.passGate(f, opt, &calls)
	if err != nil {
		return Handle{}, err
	}
	e.add(f)
	f.part = e.ready.join(group, opt.Subgroup)
	f.flow = e.flows.bind(d)
	f.flow.started()
	if wait {
		f.state, f.why = Parked, whyGate
		if grace := cmp.Or(opt.Grace, e.opt.Grace); grace > 0 {
			e.setTimer(f, plus(f.progress.began, grace))
		}
	} else {
		e.makeReady(f)
	}
	return Handle{f}, nil
}
