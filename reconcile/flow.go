package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

// Fibers says how a controller works on its objects with flows over a packet P: each object that has something to do is
// one fiber. Flow has to be given, one of Position and Changed, and Packet unless P is T.
type Fibers[T, P any] struct {
	// Flow brings an object to what it asks for. Its Undo steps, as far as their steps were begun, are run when the
	// object is deleted.
	Flow *flow.Flow[P]
	// Choose picks another flow for the present state of an object; nil is Flow. It is asked again after a restart, and
	// has to pick the same one for the position to be resumed. The Undo steps are those of Flow.
	Choose func(obj *T) *flow.Flow[P]
	// Packet makes what the steps work on. It may use ctx and must be brief. Default: the object, if P is T.
	Packet func(ctx context.Context, t *Task[T]) (*P, error)
	// Position says where in the status the position of the fiber is kept, also that it has completed. The schema of
	// the kind has to keep it, see [client.StatusPosition].
	Position func(obj *T) **flow.Position
	// Changed takes the place of Position where fibers look at the world as it is each time, and so begin anew after a
	// restart: nothing of them is recorded. It is told that something has happened that concerns the object of a fiber
	// that is alive, a newer generation too, which does not end the fiber then; false says that the fiber will not look
	// any more, and has another one follow it. What happens when none is alive starts one. On deletion all Undo steps
	// are run. It is called on a worker of the controller, where InfoFrom says what has happened, and has to be brief.
	Changed func(ctx context.Context, packet *P) (seen bool)
	// Gone is told that an object does not exist any more; it may be told so more than once, and has to be brief.
	Gone func(k Key)
	// Needed is asked when the flow has completed for this generation of an object and something has happened that
	// concerns it ([Owns], [Watches], the maximum interval): true runs the flow once more, from its first step.
	// Default: never; with Changed it is not asked.
	Needed func(ctx context.Context, obj *T) (bool, error)
	// Mode is what a newer generation does to the fiber of the one before: flow.Preempt, the default, cancels it, and
	// starts when its code has returned; flow.Coalesce lets it finish. The deletion of the object always preempts.
	Mode flow.Mode
	// Timeout fails a fiber with flow.ErrTimeout when it has lasted so long, restarts included; 0 is no limit.
	Timeout time.Duration
	// OnEnd is told how each fiber ended, on a worker of the engine. It has to be brief.
	OnEnd func(obj *T, r flow.Result)
}

// Task is what a fiber works on. Steps find it with flow.Use[*Task[T]], and the client with flow.Use[*client.Client].
type Task[T any] struct {
	Object *T // a copy, as it was when the fiber was started; it belongs to the fiber
	Client *client.Client
	set    func(func(*T) error)
}

// SetStatus has fn change the status when the position is saved next: one write for both. Only changes of the status
// count, and fn may run several times, on a fresh copy each.
func (t *Task[T]) SetStatus(fn func(obj *T) error) { t.set(fn) }

// Flow declares a controller that runs a fiber for each object, on an engine that the caller closes after the host has
// stopped. One that is closed before ends the controller, and so the host, with [ErrEngineClosed].
//
// A fiber starts when an object appears or its generation changes; see [Fibers] for what else does. While it is alive,
// further events of that generation start nothing, and it holds no worker of the controller, nor of the engine while it
// is parked. Its end is that of the reconciliation: an error leads to another fiber after the back-off, or with
// [AsTerminal] when the spec changes; [Controller.Failures], MaxAttempts and the other options about failures count
// fibers. [Deadline] and [Stuck] bound the moments around a fiber only, not the fiber; that has Timeout, and the
// engine's own reports.
//
// The position is saved in the status, merged with what the steps say there, and leads to no reconciliation. After a
// restart, or when this process leads again, a fiber goes on where it was saved. When leadership is lost or the host
// stops, fibers are cancelled and waited for; none writes after that.
//
// If Flow has Undo steps, the controller has a finalizer, added before the first step. On deletion the fiber is
// cancelled, the Undo steps run in reverse from the furthest step that any fiber of the object had come to, and then
// the finalizer is removed. Without Undo steps the fiber is just cancelled. How far they came is in the position, which
// is saved before a step that has an Undo is begun, and is read from the server: also when the object was deleted while
// no process ran, only what was begun is undone. Where the position is lost but package alloc holds something, all of
// it is.
//
// The key of the fiber is that of [FiberKey], its group the namespace. [T] must not be unstructured.
func Flow[T, P any, PT client.ObjectOf[T]](h Host, name string, e *flow.Engine, how Fibers[T, P],
	opts ...Option,
) *Controller {
	r := &flows[T, P, PT]{engine: e, how: how, name: name, live: map[Key]*fiber{}}
	err := r.complete()
	w := workOf[T, PT](r)
	if how.Flow != nil && how.Flow.Undoes() {
		w.cleans = true
		w.clean = func(ctx context.Context, obj client.Object) (Result, error) { return r.cleanup(ctx, (*T)(obj.(PT))) }
	}
	w.saves = how.Position != nil
	w.gone, w.halt, w.move, w.why = r.gone, r.halt, r.move, r.why
	w.hosted = func(from Inherited) {
		if e == nil {
			return
		}
		e.InheritLogger(from.Logger)
		e.InheritTracerProvider(from.TracerProvider)
		if from.Shards != nil {
			e.RequireDurable()
		}
	}
	r.c = declare(h, name, w, PT(new(T)), err, opts)
	return r.c
}

// FiberKey is the key of the fiber that a controller runs for an object, such as "domains/prod/orders".
func FiberKey(controller string, k Key) string { return controller + "/" + k.String() }

// AsTerminal makes an error one that a fiber, or a reconciliation, is not tried again after until the spec changes. It
// matches ErrTerminal. nil is nil.
func AsTerminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

func (r *flows[T, P, PT]) complete() error {
	var errs []error
	fault := func(what string) { errs = append(errs, fmt.Errorf("%w: %s", ErrInvalid, what)) }
	switch {
	case r.how.Flow == nil:
		fault("no flow")
	case r.how.Flow.Err() != nil:
		errs = append(errs, fmt.Errorf("%w: %w", ErrInvalid, r.how.Flow.Err()))
	}
	if r.engine == nil {
		fault("no engine")
	}
	switch {
	case r.how.Position == nil && r.how.Changed == nil:
		fault("no position: fibers would begin anew after each restart")
	case r.how.Position != nil && r.how.Changed != nil:
		fault("a position and Changed exclude each other")
	}
	if r.how.Mode != flow.Preempt && r.how.Mode != flow.Coalesce {
		fault("the mode has to be flow.Preempt or flow.Coalesce")
	}
	if r.how.Packet == nil {
		if _, ok := any(new(T)).(*P); !ok {
			fault("no packet")
		}
		r.how.Packet = func(_ context.Context, t *Task[T]) (*P, error) { return any(t.Object).(*P), nil }
	}
	return errors.Join(errs...)
}
