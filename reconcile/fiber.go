package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/why"
)

// flows is the reconciler behind Flow. It starts fibers and turns their outcomes into results.
type flows[T, P any, PT client.ObjectOf[T]] struct {
	name   string // of the controller
	engine *flow.Engine
	config Fibers[T, P]
	host   fiberHost
	fibers fiberSet
}

// fiberHost is what fibers need of their controller.
type fiberHost struct {
	client    *client.Client
	log       *slog.Logger
	slots     *handover.Slots // nil: replicas do not share the objects
	finalizer string          // "" if there is none
	trigger   func(k Key, source string)
	recovered func(k Key)     // ends the failure of an earlier fiber
	fail      func(err error) // ends the controller
	// values returns the context values for the steps of a fiber. ctx is the context of the running reconciliation.
	values func(ctx context.Context, k Key, slot int, waiting *binding.Waiting) context.Context
}

// pending is the result of a reconciliation whose fiber is still running.
var pending = Result{pending: true}

// Reconcile implements Reconciler.
func (r *flows[T, P, PT]) Reconcile(ctx context.Context, obj *T) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	if o.GetDeletionTimestamp() != nil {
		r.deleted(k)
		return Done, nil
	}
	if r.config.Changed != nil {
		return r.passChange(ctx, obj)
	}
	done := false
	if f := r.fibers.find(k, o.GetUID(), false); f != nil {
		same := f.generation == o.GetGeneration()
		switch {
		case !f.ended && (same || r.config.Mode == flow.Coalesce):
			return pending, nil
		case f.ended && same:
			if err := r.handleEnd(ctx, k, f); err != nil {
				return Done, err
			}
			done = true // obj may not show this yet
		}
	}
	if done || completed(*r.config.Position(obj), o.GetGeneration()) {
		if r.config.Needed == nil {
			return Done, nil
		}
		if needed, err := r.config.Needed(ctx, obj); err != nil || !needed {
			return Done, err
		}
	}
	return r.start(ctx, obj, r.choose(obj), false)
}

func (r *flows[T, P, PT]) choose(obj *T) *flow.Flow[P] {
	if r.config.Choose != nil {
		if chosen := r.config.Choose(obj); chosen != nil {
			return chosen
		}
	}
	return r.config.Flow
}

// passChange passes an event to the running fiber of an object, or starts a fiber. It is used with Fibers.Changed.
func (r *flows[T, P, PT]) passChange(ctx context.Context, obj *T) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	switch f := r.fibers.find(k, o.GetUID(), false); {
	case f == nil:
	case !f.ended:
		if !f.changed(ctx) {
			r.missed(k, f)
		}
		return pending, nil
	default:
		if err := r.handleEnd(ctx, k, f); err != nil {
			return Done, err
		}
		if !f.missedEvent && onlyTriggered(ctx, r.name) {
			return Result{ignored: true}, nil // the object may be newer than what the fiber has seen
		}
	}
	return r.start(ctx, obj, r.choose(obj), false)
}

// missed handles an event that the fiber did not accept, since it reads no further changes. Another fiber follows it.
func (r *flows[T, P, PT]) missed(k Key, f *fiber) {
	if !r.fibers.repeat(k, f.uid) {
		r.host.trigger(k, r.name+" again")
	}
}

// onlyTriggered reports whether the end of a fiber is the only reason for the reconciliation.
func onlyTriggered(ctx context.Context, name string) bool {
	info := InfoFrom(ctx)
	return info.Dropped == 0 && !slices.ContainsFunc(info.Reasons, func(why Reason) bool {
		return why.Type != Triggered || why.Source != name
	})
}

// cleanup runs the Undo steps for an object that is being deleted. It returns Done when all are complete.
func (r *flows[T, P, PT]) cleanup(ctx context.Context, obj *T) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	if f := r.fibers.find(k, o.GetUID(), true); f != nil {
		if !f.ended {
			if f.changed != nil && !f.changed(ctx) {
				r.missed(k, f)
			}
			return pending, nil
		}
		return Done, r.handleEnd(ctx, k, f)
	}
	if r.config.Changed != nil {
		return r.start(ctx, obj, r.config.Flow, true)
	}
	live, err := r.stored(ctx, o)
	switch {
	case isGone(err):
		return Done, nil
	case err != nil:
		return Done, err
	}
	switch p := *r.config.Position((*T)(live)); {
	case p != nil && p.Reason == reasonCompleted && p.Flow == undoName(r.config.Flow):
		return Done, nil // completed before a restart
	case p == nil && r.fibers.find(k, o.GetUID(), false) == nil && len(alloc.Held(live)) == 0:
		// No step with an Undo was started. Otherwise there would be a position, or an allocated slot if that is lost.
		return Done, nil
	}
	return r.start(ctx, obj, r.config.Flow, true)
}

// stored reads an object from the server. The cache may be older than the position or the allocations that another
// process has written.
func (r *flows[T, P, PT]) stored(ctx context.Context, o PT) (PT, error) {
	live := PT(new(T))
	live.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	if err := r.host.client.Live().Get(ctx, client.KeyOf(o), live); err != nil {
		return nil, fmt.Errorf("cannot read the position of its fibers: %w", err)
	}
	if live.GetUID() != o.GetUID() {
		return nil, client.ErrReplaced
	}
	return live, nil
}

// handleEnd handles a fiber that has ended. It returns the error of the fiber once. It saves a completion that could
// not be saved when the fiber ended.
func (r *flows[T, P, PT]) handleEnd(ctx context.Context, k Key, f *fiber) error {
	if f.err == nil && f.unsaved != nil {
		if err := f.unsaved(ctx); err != nil && !isGone(err) {
			return fmt.Errorf("cannot save the end of the fiber: %w", err)
		}
	}
	if f.undo && f.err == nil {
		return nil // kept until the object is gone: Undo must not run twice if removing the finalizer fails
	}
	r.fibers.forget(k, f.handle)
	if f.failed {
		return &fiberError{f.err, f.handle.Info().Trail}
	}
	return f.err
}

// fiberError is the failure of a fiber. The reconciliation that handles the end of the fiber reports it.
type fiberError struct {
	error
	trail flow.Trail
}

func (e *fiberError) Unwrap() error { return e.error }

// start starts a fiber, or its Undo steps. It replaces a running fiber of the object.
func (r *flows[T, P, PT]) start(ctx context.Context, obj *T, fl *flow.Flow[P], undo bool) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	if err := fl.Err(); err != nil { // Choose may return an invalid flow
		return Done, AsTerminal(fmt.Errorf("cannot start a fiber of %s: %w", k, err))
	}
	at, begin := r.position(o, fl, undo), fl.Start
	if undo {
		begin = fl.Undo
	}
	task := &Task[T]{
		Object: obj, Client: r.host.client,
		set: func(fn func(*T) error) { at.Set(func(o PT) error { return fn((*T)(o)) }) },
	}
	if r.config.Changed == nil { // otherwise the fiber reads newer objects, too
		seen := o.GetGeneration()
		task.set = func(fn func(*T) error) {
			at.Set(func(o PT) error {
				current := o.GetGeneration()
				defer o.SetGeneration(current)
				o.SetGeneration(seen)
				return fn((*T)(o))
			})
		}
	}
	packet, err := r.config.Packet(ctx, task)
	if err != nil {
		return Done, err
	}
	f := &fiber{
		uid: o.GetUID(), slot: r.host.slots.SlotOf(k.Namespace, o.GetUID()), generation: o.GetGeneration(), undo: undo,
		waiting: &at.waiting,
	}
	var positions flow.Positions = at
	values := r.host.values(ctx, k, f.slot, &at.waiting)
	if r.config.Changed != nil {
		positions, f.changed = noPositions{}, func(ctx context.Context) bool { return r.config.Changed(ctx, packet) }
		values = binding.WithRecovery(values, func() { r.recovered(k, f) })
	}
	opt := flow.StartOptions{
		Key: FiberKey(r.name, k), Group: k.Namespace, Mode: flow.Preempt, Timeout: r.config.Timeout,
		Generation: o.GetGeneration(),
		Positions:  positions, Values: values,
		Providers: []flow.Provider{flow.Provide(task), flow.Provide(r.host.client)},
		OnEnd:     func(res flow.Result) { r.ended(k, f, at, obj, res) }, Reported: true,
	}
	former, ok := r.fibers.add(k, f)
	if !ok {
		return pending, nil // the object leaves: another process starts the fiber
	}
	h, err := begin(ctx, r.engine, packet, opt)
	if err == nil {
		r.fibers.started(k, f, former, h)
		return pending, nil
	}
	r.fibers.abandon(k, f, former)
	if errors.Is(err, flow.ErrClosed) { // if the process stops, another process resumes
		r.host.fail(ErrEngineClosed)
		return pending, nil
	}
	if errors.Is(err, flow.ErrInvalid) {
		err = AsTerminal(err)
	}
	return Done, err
}

// position returns where the position of a fiber is stored.
func (r *flows[T, P, PT]) position(o PT, fl *flow.Flow[P], undo bool) *statusAt[T, PT] {
	steps, name := fl.Steps(), fl.Name()
	if undo {
		name = undoName(fl)
	}
	at := &statusAt[T, PT]{
		StatusPosition: client.NewStatusPosition(r.host.client, o,
			func(o PT) **flow.Position { return r.config.Position((*T)(o)) }),
		end: flow.Position{
			Flow: name, Generation: o.GetGeneration(), Step: steps[len(steps)-1], Reason: reasonCompleted,
			Begun: time.Now().UTC(), Ended: true,
		},
	}
	if undo && r.config.Position != nil {
		at.load = func(ctx context.Context) (*flow.Position, error) {
			live, err := r.stored(ctx, o)
			if err != nil {
				return nil, err
			}
			return *r.config.Position((*T)(live)), nil
		}
	}
	return at
}

// ended records the outcome of a fiber and triggers a reconciliation, which reports the error.
func (r *flows[T, P, PT]) ended(k Key, f *fiber, at *statusAt[T, PT], obj *T, res flow.Result) {
	defer r.fibers.release(f)
	var unsaved func(ctx context.Context) error
	switch {
	case f.changed != nil:
		unsaved = at.Flush
	case !at.endSaved && !f.undo: // saving failed, or the fiber has never parked
		unsaved = func(ctx context.Context) error { return at.Clear(ctx, "") }
	}
	closed := errors.Is(res.Err, flow.ErrClosed) && r.engine.Closed()
	// The work resumes later: after errStopping, or another cause that wraps ErrInterrupted.
	left := (res.Status == flow.Cancelled || res.Status == flow.Moved) && errors.Is(res.Err, flow.ErrInterrupted)
	stopped := closed || left || errors.Is(res.Err, errObjectGone)
	current := r.fibers.ended(k, f, res, unsaved, !stopped)
	if closed {
		r.host.fail(ErrEngineClosed)
	}
	// An overtaken fiber started from a cached object that was too old. It starts once more.
	if current && (!stopped || errors.Is(res.Err, flow.ErrOvertaken)) {
		r.host.trigger(k, r.name)
	}
	if r.config.OnEnd != nil {
		r.config.OnEnd(obj, res)
	}
}

// recovered ends the failure of an earlier fiber of an object, since f has succeeded so far.
func (r *flows[T, P, PT]) recovered(k Key, f *fiber) {
	if r.fibers.runs(k, f) {
		r.host.recovered(k)
	}
}

// deleted cancels the fiber of an object that no longer exists or is being deleted.
func (r *flows[T, P, PT]) deleted(k Key) {
	r.fibers.cancel(k)
	if r.config.Gone != nil {
		r.config.Gone(k)
	}
}

// why returns why the fiber of an object does not end, and whether there is one.
func (r *flows[T, P, PT]) why(k Key) (causes []why.Cause, works bool) {
	f := r.fibers.snapshot(k)
	if f == nil || !f.started {
		return nil, f != nil
	}
	return explainFiber(f, r.host.finalizer), true
}

// reasonCompleted marks the position of a completed fiber. The position is kept, so that a restart does not repeat the
// fiber.
const reasonCompleted = "completed"

func undoName[P any](fl *flow.Flow[P]) string { return fl.Name() + "/undo" }

func completed(p *flow.Position, generation int64) bool {
	return p != nil && p.Ended && p.Reason == reasonCompleted && p.Generation == generation
}
