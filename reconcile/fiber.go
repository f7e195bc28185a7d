package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// flows is the reconciler behind Flow. It starts fibers and turns their outcomes into results.
type flows[T, P any, PT client.ObjectOf[T]] struct {
	c      *Controller
	name   string
	engine *flow.Engine
	how    Fibers[T, P]

	running sync.WaitGroup // fibers that have not ended, including replaced ones

	mu sync.Mutex // guards live and the fields of fibers; never held while user code runs
	// live has the running fibers, the ended ones that no reconciliation has handled yet, and completed Undo runs until
	// the object is gone.
	live map[Key]*fiber
}

// fiber is a fiber that a controller has started for an object.
type fiber struct {
	uid        types.UID
	slot       int // of its object
	generation int64
	handle     flow.Handle
	err        error                           // its outcome
	unsaved    func(ctx context.Context) error // saves its completion; nil if already saved
	changed    func(ctx context.Context) bool  // calls Fibers.Changed
	moves      func(flow.Handle)               // ends it once started, since its slot leaves; may be nil
	waiting    *binding.Waiting                // the request that is being retried

	undo    bool
	ended   bool
	failed  bool // err is a failure that must be reported
	again   bool // it has missed an event
	started bool // start has returned: handle is valid
	doomed  bool // cancel it once started
}

var (
	// errStopping is the cause that cancels fibers when the controller stops or loses leadership.
	errStopping = fmt.Errorf("the controller stops or has lost its leadership: %w", flow.ErrInterrupted)
	// errMoved is the cause that interrupts fibers whose slot leaves.
	errMoved = fmt.Errorf("its slot is handed over: %w", flow.ErrMoved)
	// errObjectGone is the cause that cancels fibers whose object no longer exists or is being deleted.
	errObjectGone = errors.New("the object is deleted")
)

// pending is the result of a reconciliation whose fiber is still running.
var pending = Result{pending: true}

// Reconcile implements Reconciler.
func (r *flows[T, P, PT]) Reconcile(ctx context.Context, obj *T) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	if o.GetDeletionTimestamp() != nil {
		r.gone(k)
		return Done, nil
	}
	if r.how.Changed != nil {
		return r.follow(ctx, obj)
	}
	done := false
	if f := r.find(k, o.GetUID(), false); f != nil {
		same := f.generation == o.GetGeneration()
		switch {
		case !f.ended && (same || r.how.Mode == flow.Coalesce):
			return pending, nil
		case f.ended && same:
			if err := r.settle(ctx, k, f); err != nil {
				return Done, err
			}
			done = true // obj may not show this yet
		}
	}
	if done || completed(*r.how.Position(obj), o.GetGeneration()) {
		if r.how.Needed == nil {
			return Done, nil
		}
		if needed, err := r.how.Needed(ctx, obj); err != nil || !needed {
			return Done, err
		}
	}
	return r.start(ctx, obj, r.choose(obj), false)
}

func (r *flows[T, P, PT]) choose(obj *T) *flow.Flow[P] {
	if r.how.Choose != nil {
		if chosen := r.how.Choose(obj); chosen != nil {
			return chosen
		}
	}
	return r.how.Flow
}

// follow passes an event to the running fiber of an object, or starts a fiber. It is used with Fibers.Changed.
func (r *flows[T, P, PT]) follow(ctx context.Context, obj *T) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	switch f := r.find(k, o.GetUID(), false); {
	case f == nil:
	case !f.ended:
		if !f.changed(ctx) {
			r.missed(k, f)
		}
		return pending, nil
	default:
		if err := r.settle(ctx, k, f); err != nil {
			return Done, err
		}
		if !f.again && onlyTriggered(ctx, r.name) {
			return Done, nil
		}
	}
	return r.start(ctx, obj, r.choose(obj), false)
}

// missed handles an event that the fiber did not accept, since it reads no further changes. Another fiber follows it.
func (r *flows[T, P, PT]) missed(k Key, f *fiber) {
	r.mu.Lock()
	now := r.live[k]
	alive := now != nil && now.changed != nil && now.uid == f.uid && !now.ended
	if alive {
		now.again = true
	}
	r.mu.Unlock()
	if !alive {
		r.c.Trigger(k, r.name+" again")
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
	if f := r.find(k, o.GetUID(), true); f != nil {
		if !f.ended {
			if f.changed != nil && !f.changed(ctx) {
				r.missed(k, f)
			}
			return pending, nil
		}
		return Done, r.settle(ctx, k, f)
	}
	if r.how.Changed != nil {
		return r.start(ctx, obj, r.how.Flow, true)
	}
	live, err := r.stored(ctx, o)
	switch {
	case isGone(err):
		return Done, nil
	case err != nil:
		return Done, err
	}
	switch p := *r.how.Position((*T)(live)); {
	case p != nil && p.Reason == reasonCompleted && p.Flow == undoName(r.how.Flow):
		return Done, nil // completed before a restart
	case p == nil && r.find(k, o.GetUID(), false) == nil && len(alloc.Held(live)) == 0:
		// No step with an Undo was started. Otherwise there would be a position, or an allocated slot if that is lost.
		return Done, nil
	}
	return r.start(ctx, obj, r.how.Flow, true)
}

// stored reads an object from the server. The cache may be older than the position or the allocations that another
// process has written.
func (r *flows[T, P, PT]) stored(ctx context.Context, o PT) (PT, error) {
	live := PT(new(T))
	live.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	if err := r.c.client.Live().Get(ctx, client.KeyOf(o), live); err != nil {
		return nil, fmt.Errorf("cannot read how far its fibers came: %w", err)
	}
	if live.GetUID() != o.GetUID() {
		return nil, client.ErrReplaced
	}
	return live, nil
}

// find returns a copy of the fiber of an object, or nil if there is none with this uid and undo.
func (r *flows[T, P, PT]) find(k Key, uid types.UID, undo bool) *fiber {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.live[k]
	if f == nil || f.uid != uid || f.undo != undo {
		return nil
	}
	seen := *f
	return &seen
}

// settle handles a fiber that has ended. It returns the error of the fiber once, and saves a completion that could not
// be saved when the fiber ended.
func (r *flows[T, P, PT]) settle(ctx context.Context, k Key, f *fiber) error {
	if f.err == nil && f.unsaved != nil {
		if err := f.unsaved(ctx); err != nil && !isGone(err) {
			return fmt.Errorf("cannot save the end of the fiber: %w", err)
		}
	}
	if f.undo && f.err == nil {
		return nil // kept until the object is gone: Undo must not run twice if removing the finalizer fails
	}
	r.mu.Lock()
	if now := r.live[k]; now != nil && now.handle == f.handle {
		delete(r.live, k)
	}
	r.mu.Unlock()
	if f.failed {
		return &fiberError{f.err, f.handle.Info().Trail}
	}
	return f.err
}

// fiberError is the failure of a fiber. The reconciliation that settles the fiber reports it.
type fiberError struct {
	error
	trail flow.Trail
}

func (e *fiberError) Unwrap() error { return e.error }

// unsettled logs the failure of an ended fiber that no reconciliation will settle.
func (r *flows[T, P, PT]) unsettled(k Key, f *fiber) {
	if f.failed {
		r.c.log.Warn("an obsolete fiber failed", "key", k.String(), "error", f.err,
			"trail", f.handle.Info().Trail.String())
	}
}

// start starts a fiber, or its Undo steps. It replaces a running fiber of the object.
func (r *flows[T, P, PT]) start(ctx context.Context, obj *T, fl *flow.Flow[P], undo bool) (Result, error) {
	o := PT(obj)
	k := client.KeyOf(o)
	if err := fl.Err(); err != nil { // Choose may return an invalid flow
		return Done, AsTerminal(fmt.Errorf("cannot start a fiber of %s: %w", k, err))
	}
	steps := fl.Steps()
	at := &statusAt[T, PT]{StatusPosition: client.NewStatusPosition(r.c.client, o,
		func(o PT) **flow.Position { return r.how.Position((*T)(o)) })}
	if undo && r.how.Position != nil {
		at.load = func(ctx context.Context) (*flow.Position, error) {
			live, err := r.stored(ctx, o)
			if err != nil {
				return nil, err
			}
			return *r.how.Position((*T)(live)), nil
		}
	}
	at.end = flow.Position{
		Flow: fl.Name(), Generation: o.GetGeneration(), Step: steps[len(steps)-1], Reason: reasonCompleted,
		Begun: time.Now().UTC(), Ended: true,
	}
	task := &Task[T]{
		Object: obj, Client: r.c.client,
		set: func(fn func(*T) error) { at.Set(func(o PT) error { return fn((*T)(o)) }) },
	}
	packet, err := r.how.Packet(ctx, task)
	if err != nil {
		return Done, err
	}
	f := &fiber{
		uid: o.GetUID(), slot: r.c.slots.SlotOf(k.Namespace, o.GetUID()), generation: o.GetGeneration(), undo: undo,
		waiting: &at.waiting,
	}
	var positions flow.Positions = at
	if r.how.Changed != nil {
		positions, f.changed = nowhere{}, func(ctx context.Context) bool { return r.how.Changed(ctx, packet) }
	}
	opt := flow.StartOptions{
		Key: FiberKey(r.name, k), Group: k.Namespace, Mode: flow.Preempt, Timeout: r.how.Timeout,
		Generation: o.GetGeneration(),
		Positions:  positions, Values: r.c.fiberValues(ctx, k, f.slot, &at.waiting),
		Providers: []flow.Provider{flow.Provide(task), flow.Provide(r.c.client)},
		OnEnd:     func(res flow.Result) { r.ended(k, f, at, obj, res) }, Reported: true,
	}
	if _, ok := r.c.slots.Enter(f.slot); !ok {
		return pending, nil // the object leaves: another process starts the fiber
	}
	r.mu.Lock()
	former := r.live[k]
	over := former != nil && former.ended
	r.live[k] = f
	r.mu.Unlock()
	begin := fl.Start
	if undo {
		begin, at.end.Flow = fl.Undo, undoName(fl)
	}
	r.running.Add(1)
	h, err := begin(ctx, r.engine, packet, opt)
	if over && err == nil {
		r.unsettled(k, former)
	}
	r.mu.Lock()
	if f.handle, f.started = h, true; f.doomed { // the object was deleted meanwhile
		delete(r.live, k)
		ended := f.ended
		defer func() {
			if h.Cancel(errObjectGone); ended {
				r.unsettled(k, f)
			}
		}()
	}
	defer func() {
		if f.moves != nil { // its slot has begun to leave
			f.moves(h)
		}
	}()
	defer r.mu.Unlock()
	if err != nil {
		r.running.Done()
		r.c.slots.Leave(f.slot)
		if delete(r.live, k); former != nil {
			r.live[k], h = former, former.handle
		}
		if errors.Is(err, flow.ErrClosed) { // if the process stops, another process resumes
			r.c.breaks(ErrEngineClosed)
			return pending, nil
		}
		if errors.Is(err, flow.ErrInvalid) {
			err = AsTerminal(err)
		}
		return Done, err
	}
	return pending, nil
}

// ended records the outcome of a fiber and triggers a reconciliation, which reports the error.
func (r *flows[T, P, PT]) ended(k Key, f *fiber, at *statusAt[T, PT], obj *T, res flow.Result) {
	defer r.running.Done()
	defer r.c.slots.Leave(f.slot)
	r.mu.Lock()
	current := r.live[k] == f
	f.handle, f.ended, f.err, f.failed = res.Handle, true, res.Err, res.Status == flow.Failed
	switch {
	case f.changed != nil:
		f.unsaved = at.Flush
	case !at.kept && !f.undo: // saving failed, or the fiber has never parked
		f.unsaved = func(ctx context.Context) error { return at.Clear(ctx, "") }
	}
	closed := errors.Is(res.Err, flow.ErrClosed) && r.engine.Closed()
	// The work resumes later: after errStopping, or another cause that wraps ErrInterrupted.
	left := (res.Status == flow.Cancelled || res.Status == flow.Moved) && errors.Is(res.Err, flow.ErrInterrupted)
	// The fiber started from a cached object that was too old. It starts once more.
	overtaken := errors.Is(res.Err, flow.ErrOvertaken)
	stopped := closed || left || errors.Is(res.Err, errObjectGone)
	if current && stopped {
		delete(r.live, k)
	}
	r.mu.Unlock()
	if closed {
		r.c.breaks(ErrEngineClosed)
	}
	if current && (!stopped || overtaken) {
		r.c.Trigger(k, r.name)
	}
	if !current || stopped {
		r.unsettled(k, f)
	}
	if r.how.OnEnd != nil {
		r.how.OnEnd(obj, res)
	}
}

// gone cancels the fiber of an object that no longer exists or is being deleted.
func (r *flows[T, P, PT]) gone(k Key) {
	var h flow.Handle
	r.mu.Lock()
	f := r.live[k]
	if f != nil {
		if f.doomed = true; f.started {
			delete(r.live, k)
			h = f.handle
		}
	}
	ended := f != nil && f.ended
	r.mu.Unlock()
	if h.Cancel(errObjectGone); ended {
		r.unsettled(k, f)
	}
	if r.how.Gone != nil {
		r.how.Gone(k)
	}
}

// halt cancels all fibers and waits until their code has returned. No reconciliation may be running.
func (r *flows[T, P, PT]) halt() {
	var all []flow.Handle
	over := map[Key]*fiber{}
	r.mu.Lock()
	for k, f := range r.live {
		if f.ended {
			over[k] = f
		}
		all = append(all, f.handle)
	}
	clear(r.live)
	r.mu.Unlock()
	for k, f := range over {
		r.unsettled(k, f)
	}
	for _, h := range all {
		h.Cancel(errStopping)
	}
	r.running.Wait()
}

// move calls end for the fibers of slots that leave, so that another process resumes them.
func (r *flows[T, P, PT]) move(slots shard.Set, end func(flow.Handle)) {
	var all []flow.Handle
	over := map[Key]*fiber{}
	r.mu.Lock()
	for k, f := range r.live {
		switch {
		case !slots.Holds(f.slot):
		case f.ended:
			delete(r.live, k)
			over[k] = f
		case f.started:
			all = append(all, f.handle)
		default:
			f.moves = end
		}
	}
	r.mu.Unlock()
	for k, f := range over {
		r.unsettled(k, f)
	}
	for _, h := range all {
		end(h)
	}
}

// fiberValues returns the context values for the steps of a fiber: the fence of the term, the owner of the writes, and
// the finalizer for package alloc.
func (c *Controller) fiberValues(ctx context.Context, k Key, slot int, waiting *binding.Waiting) context.Context {
	term := c.termOf(k)
	values := context.WithoutCancel(ctx)
	if term != nil {
		values = context.WithoutCancel(term)
	}
	values = withoutSpan(values)
	if c.object.cleans {
		values = alloc.WithFinalizer(values, c.set.finalizer)
	}
	return binding.With(values, binding.Binding{
		Fence: c.fence(term, slot), RequireVersion: true, Waiting: waiting, Write: store.WriteContext{
			Owner:   c.owner,
			Primary: k,
		},
	})
}

// reasonCompleted marks the position of a completed fiber. The position is kept, so that a restart does not repeat the
// fiber.
const reasonCompleted = "completed"

func undoName[P any](fl *flow.Flow[P]) string { return fl.Name() + "/undo" }

func completed(p *flow.Position, generation int64) bool {
	return p != nil && p.Ended && p.Reason == reasonCompleted && p.Generation == generation
}
