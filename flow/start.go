package flow

import (
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
	h, err := startFiber(ctx, e, d, newFiber(packet), &opt)
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
	h, err := startFiber(ctx, e, d.undo, newFiber(packet), &opt)
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

// startFiber starts f, which runs d on e.
func startFiber(ctx context.Context, e *Engine, d *def, f *fiber, opt *StartOptions) (Handle, error) {
	if d.err != nil {
		return Handle{}, d.err
	}
	if err := opt.check(e); err != nil {
		return Handle{}, err
	}
	if opt.IfCurrent.f != nil && opt.Key == "" {
		opt.Key = opt.IfCurrent.f.root().key
	}
	f.resume = d.first
	if opt.From != "" {
		var ok bool
		if f.resume, ok = d.from(opt.From); !ok {
			return Handle{}, fmt.Errorf("cannot begin at %q: %w", opt.From, errUnknownStep)
		}
	}
	f.e = &e.core
	opt.apply(f, e.time.now(), &e.fibers.journals)
	e.spans.follow(f, trace.SpanContextFromContext(ctx), opt.Trace)
	var calls cancels
	err := e.fibers.start(f, d, opt, &calls)
	calls.run()
	if err != nil {
		return Handle{}, err
	}
	return Handle{f}, nil
}

// check returns what is invalid in the options.
func (opt *StartOptions) check(e *Engine) error {
	switch {
	case !e.made():
		return fmt.Errorf("%w: no engine", ErrInvalid)
	case opt.Timeout < 0:
		return fmt.Errorf("%w: a timeout of %v", ErrInvalid, opt.Timeout)
	case opt.Mode > SkipIfBusy:
		return fmt.Errorf("%w: mode %d", ErrInvalid, opt.Mode)
	case opt.Positions != nil && opt.Key == "":
		return fmt.Errorf("%w: positions need a key", ErrInvalid)
	}
	return nil
}

// apply sets the fields of f, which has not started.
func (opt *StartOptions) apply(f *fiber, now int64, env *journalEnv) {
	f.key, f.onEnd, f.reported = opt.Key, opt.OnEnd, opt.Reported
	f.progress.start(now)
	if len(opt.Providers) > 0 {
		f.ext().providers = opt.Providers
	}
	if opt.Timeout > 0 {
		f.ext().deadline = plus(now, opt.Timeout)
	}
	if opt.Values != nil {
		f.ext().values = opt.Values
	}
	if opt.Positions != nil {
		f.ext().journal = &journal{
			f: f, env: env, store: opt.Positions, generation: opt.Generation, timeout: opt.Timeout,
		}
	}
}

// group returns the group of the fiber: Group, or the key up to its first slash.
func (opt *StartOptions) group() string {
	if opt.Group != "" {
		return opt.Group
	}
	group, _, _ := strings.Cut(opt.Key, "/")
	return group
}
