package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

// Fibers configures how [Flow] runs flows over a packet P, one fiber for each object. Flow is required, and exactly one
// of Position and Changed. Packet is required unless P is T.
type Fibers[T, P any] struct {
	// Flow brings an object to its desired state. On deletion, the Undo steps run of those steps that were started.
	Flow *flow.Flow[P]
	// Choose returns another flow for the current state of an object; nil means Flow. After a restart it must return the
	// same flow for the position to be resumed. The Undo steps are always those of Flow.
	Choose func(obj *T) *flow.Flow[P]
	// Packet returns the packet of a fiber. It may use ctx and must return quickly. Default: the object, if P is T.
	Packet func(ctx context.Context, t *Task[T]) (*P, error)
	// Position returns where the status stores the position of the fiber, including its completion. The schema of the kind
	// must not prune it, see [client.StatusPosition].
	Position func(obj *T) **flow.Position
	// Changed replaces Position for fibers that read the current state each time and start over after a restart. Their
	// positions are not stored. The controller calls Changed on an event that concerns the object of a running fiber. A
	// newer generation also leads to a call, and does not end the fiber.
	//
	// If Changed returns false, the fiber reads no further changes, and the controller starts another fiber after it. An
	// event starts a fiber if none is running. On deletion all Undo steps run. Changed is called on a worker of the
	// controller and must return quickly. InfoFrom(ctx) has the events.
	Changed func(ctx context.Context, packet *P) (seen bool)
	// Gone is called when an object no longer exists, possibly more than once. It must return quickly.
	Gone func(k Key)
	// Needed is called on an event that concerns the object ([Owns], [Watches], the maximum interval) after the flow has
	// completed for its generation. If it returns true, the flow runs once more, from its first step. Without Needed a
	// completed flow does not run again. Needed is not used with Changed.
	Needed func(ctx context.Context, obj *T) (bool, error)
	// Mode is the effect of a newer generation on a running fiber. flow.Preempt, the default, cancels it and starts the
	// next one when its code has returned. flow.Coalesce lets it finish. The deletion of the object always preempts.
	Mode flow.Mode
	// Timeout fails a fiber with flow.ErrTimeout after this total time, including restarts; 0 means no limit.
	Timeout time.Duration
	// OnEnd is called with the result of each fiber, on a worker of the engine. It must return quickly.
	OnEnd func(obj *T, r flow.Result)
}

// Task is the object of a fiber with a client. Steps get it with flow.Use[*Task[T]], and the client with
// flow.Use[*client.Client].
type Task[T any] struct {
	Object *T // a copy from the start of the fiber, which owns it
	Client *client.Client
	set    func(func(*T) error)
}

// SetStatus registers fn to change the status when the position is next saved, in the same write. Changes outside the
// status are ignored. fn may run several times, each time on a fresh copy. Without Fibers.Changed, that copy has the
// generation of Object, even if the spec has changed since. So [SetCondition] records the generation that the fiber has
// seen.
func (t *Task[T]) SetStatus(fn func(obj *T) error) { t.set(fn) }

// Flow declares a controller that runs a fiber for each object, on an engine of package flow. The caller closes the
// engine after the host has stopped. Closing it earlier ends the controller, and so the host, with [ErrEngineClosed].
//
// A fiber starts when an object appears or its generation changes; [Fibers] describes further conditions. While it is
// alive, further events of that generation start no other fiber. The fiber holds no worker of the controller, and while
// parked, none of the engine.
//
// The outcome of the fiber is the outcome of the reconciliation. After an error, another fiber starts after the
// back-off, or with [AsTerminal], when the spec changes. [Controller.Failures], [MaxAttempts] and the other options
// about failures count fibers. [Deadline] and [Stuck] apply to the calls that start and settle a fiber, not to the
// fiber itself. Use Timeout and the reports of the engine for the fiber.
//
// The position is saved in the status, merged with the changes of the steps. This write leads to no reconciliation. A
// fiber resumes at its saved position after a restart, or when this process leads again. When leadership is lost or the
// host stops, the controller cancels the fibers and waits for them. They write nothing after that.
//
// If Flow has Undo steps, the controller adds a finalizer before the first step. On deletion it cancels the fiber. The
// Undo steps then run in reverse, from the furthest step that any fiber of the object has reached. Finally, the
// controller removes the finalizer. Without Undo steps it only cancels the fiber.
//
// The controller saves the position before it starts a step that has an Undo, and reads it from the server on deletion.
// So only steps that were started are undone, even if the object was deleted while no process ran. If the position is
// lost but package alloc holds something, all Undo steps run.
//
// [FiberKey] is the key of the fiber, and the namespace is its group. T must not be unstructured.
func Flow[T, P any, PT client.ObjectOf[T]](h Host, name string, e *flow.Engine, config Fibers[T, P],
	opts ...Option,
) *Controller {
	r := &flows[T, P, PT]{engine: e, config: config, name: name}
	err := r.complete()
	w := workOf[T, PT](r)
	if config.Flow != nil && config.Flow.Undoes() {
		w.cleans = true
		w.clean = func(ctx context.Context, obj client.Object) (Result, error) { return r.cleanup(ctx, (*T)(obj.(PT))) }
	}
	w.saves = config.Position != nil
	w.deleted, w.halt, w.move, w.why = r.deleted, r.fibers.halt, r.fibers.move, r.why
	w.flows = r.fibers.count
	w.hosted = func(from Inherited, h fiberHost) {
		r.host, r.fibers.slots, r.fibers.log = h, h.slots, h.log
		if e != nil {
			e.Inherit(from.Logger, from.TracerProvider, from.Shards != nil)
		}
	}
	return declare(h, name, w, PT(new(T)), err, opts)
}

// FiberKey returns the key of the fiber that a controller runs for an object, such as "domains/prod/orders".
func FiberKey(controller string, k Key) string { return controller + "/" + k.String() }

// AsTerminal returns an error that wraps err and matches [ErrTerminal]: the controller does not retry until the spec
// changes. It returns nil if err is nil.
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
	case r.config.Flow == nil:
		fault("no flow")
	case r.config.Flow.Err() != nil:
		errs = append(errs, fmt.Errorf("%w: %w", ErrInvalid, r.config.Flow.Err()))
	}
	if r.engine == nil {
		fault("no engine")
	}
	switch {
	case r.config.Position == nil && r.config.Changed == nil:
		fault("no position: fibers would restart from the beginning after each restart of the process")
	case r.config.Position != nil && r.config.Changed != nil:
		fault("a position and Changed exclude each other")
	}
	if r.config.Mode != flow.Preempt && r.config.Mode != flow.Coalesce {
		fault("the mode must be flow.Preempt or flow.Coalesce")
	}
	if r.config.Packet == nil {
		if _, ok := any(new(T)).(*P); !ok {
			fault("no packet")
		}
		r.config.Packet = func(_ context.Context, t *Task[T]) (*P, error) { return any(t.Object).(*P), nil }
	}
	return errors.Join(errs...)
}
