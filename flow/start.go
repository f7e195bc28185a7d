package flow

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// StartOptions says how a fiber runs; the zero value runs it at once, beside all others.
type StartOptions struct {
	// Key names what the fiber works on, such as "namespace/name"; the gate lets one fiber per key run. "" passes no
	// gate.
	Key string
	// Mode is what to do when a fiber of the key is alive.
	Mode Mode
	// IfCurrent, if set, starts only if that fiber (or the one it was forked from) is still the newest of the key;
	// otherwise Start returns ErrNotCurrent. It is how a fiber's callback chains failure steps after itself.
	IfCurrent Handle
	// Group shares the workers fairly. Default: the key up to its first slash.
	Group string
	// Subgroup shares the turns of the group fairly: those of one group have them one after the other. Default: all are
	// one.
	Subgroup string
	// OnEnd is called once, when the fiber has ended, on a worker, before the next fiber of the key starts. It should
	// be brief and must not wait for fibers.
	OnEnd func(Result)
	// Reported says that who starts the fiber reports its failure, from OnEnd or later: the engine logs it at Debug level.
	Reported bool
	// From is the path of the step to begin with, as Flow.Steps names it; for Undo, the last step that was begun. A
	// position that is resumed takes precedence. Default: the first step; for Undo, the last.
	From string
	// Timeout fails the fiber with ErrTimeout when it has lasted so long, restarts included; 0 is no limit.
	Timeout time.Duration
	// Grace overrides that of the engine for this fiber's wait at the gate.
	Grace time.Duration
	// Providers are found by Use before those of the flow and the engine.
	Providers []Provider
	// Values, if set, is where the contexts of the fiber's steps, those of its children and those given to Positions
	// find values besides. Its end does not matter to them.
	Values context.Context //nolint:containedctx // only its values, which outlive the start
	// Positions makes the fiber durable under its Key, which must not be empty. If a position is found and no other
	// fiber of the key is alive in this engine, the fiber goes on there. Children of forks are not recorded: a fork
	// that was under way runs again, so their steps should have a Done or use their IdempotencyKey, which is the same
	// again.
	Positions Positions
	// Generation is that of the object worked on; a position of another one is not resumed.
	Generation int64
	// Trace says what the spans of the fiber follow, beside the span of the context of the start, and what they tell.
	Trace TraceOptions
}

// Start starts a fiber over packet, which belongs to the fiber until it has ended. ctx is for the start only: if it
// carries a span, that of the fiber is a child of it, or links to it if the fiber begins more than a minute later.
// Errors: those of Err, ErrClosed, ErrBusy, ErrNotCurrent, ErrNotDurable.
func (fl *Flow[P]) Start(ctx context.Context, e *Engine, packet *P, opt StartOptions) (Handle, error) {
	d := fl.compiled()
	h, err := e.start(ctx, d, newFiber(packet), opt)
	if err != nil {
		return Handle{}, fmt.Errorf("cannot start %q%s: %w", d.name, ofKey(opt.Key), err)
	}
	return h, nil
}

// Undo starts a fiber that runs the Undo steps of the flow in reverse order. It begins with the furthest step that
// was begun: that of the saved position if opt has Positions and there is one, otherwise opt.From, or by default the
// last of the flow. A position can be relied on, since it is saved before a step that has an Undo is begun. After an
// undoing that failed, was cancelled or was interrupted, the fiber goes on at the step that the undoing had come to.
// Its name is that of the flow with "/undo". A forked flow is undone by undoing its children.
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
	defer func() { calls.run() }() // once the lock is released
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
