package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/why"
)

var (
	_ group.Participant = (*Controller)(nil)
	_ why.Explainer     = (*Controller)(nil)
)

// Controller reconciles the objects of one kind. It is safe for concurrent use. It only connects its parts, which the
// documentation of the package lists.
type Controller struct {
	name     string
	host     Host
	client   *client.Client
	set      settings
	err      error     // in the declaration; returned when the host runs
	place    string    // file:line of the declaration
	from     Inherited // inherited from the host
	object   work
	log      *slog.Logger
	declared *declaration
	slots    *handover.Slots // whose objects are reconciled; nil: replicas do not share the objects
	events   *Recorder       // about failures; nil: none

	absent []*watch // of optional kinds that are not served; only used by the goroutine of open, then that of openAbsent

	lifetime   *lifetime
	intake     *intake
	namespaces *namespaces
	follows    *follows
	pump       *pump
	scheduler  *scheduler
	workers    *workers
	elections  *elections
	sharing    *sharing
	inspect    *inspection
}

// work holds the operations on an object, without its Go type.
type work struct {
	cleans bool
	saves  bool // saves positions in the status
	// decode returns a copy of the object of a record. The caller owns the copy.
	decode func(r *cache.Record) (client.Object, error)
	fresh  func() client.Object
	do     func(ctx context.Context, obj client.Object) (Result, error)
	clean  func(ctx context.Context, obj client.Object) (Result, error)
	// finalize applies change to the metadata of obj, at the server and in obj.
	finalize func(ctx context.Context, c *client.Client, obj client.Object, change func(client.Object) error) error

	// hosted receives what the work needs of the controller, before the host runs.
	hosted func(from Inherited, h fiberHost)
	// deleted runs when an object no longer exists. halt ends the remaining work when no reconciliation runs.
	deleted func(k Key)
	halt    func()
	// move calls end for the fibers of slots that leave, so that another process resumes them.
	move func(slots shard.Set, end func(flow.Handle))
	// why returns why the fiber of an object does not end, and whether there is one.
	why func(k Key) (causes []why.Cause, works bool)
	// flows returns the number of fibers that have not ended.
	flows func() int
}

// New declares a controller that reconciles the objects of type T and runs with the host. T is a Go type that the
// scheme of the client knows, or unstructured.Unstructured with [Primary]([Kind](…)). The name must be unique on the
// host.
//
// The Run of the host returns the errors of the declaration, with file and line. The fairlead runtime does so before
// any request, together with the errors of all other declarations.
func New[T any, PT client.ObjectOf[T]](h Host, name string, r Reconciler[T], opts ...Option) *Controller {
	var err error
	if r == nil {
		err = fmt.Errorf("%w: no reconciler", ErrInvalid)
	} else if v := reflect.ValueOf(r); (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
		err = fmt.Errorf("%w: the reconciler is a nil %T", ErrInvalid, r)
	}
	w := workOf[T, PT](r)
	if cl, ok := r.(Cleaner[T]); ok {
		w.cleans = true
		w.clean = func(ctx context.Context, obj client.Object) (Result, error) {
			return cl.Cleanup(ctx, (*T)(obj.(PT)))
		}
	}
	return declare(h, name, w, PT(new(T)), err, opts)
}

// workOf wraps a reconciler in a work that does not depend on its type.
func workOf[T any, PT client.ObjectOf[T]](r Reconciler[T]) work {
	return work{
		decode: func(rec *cache.Record) (client.Object, error) {
			obj, err := store.As[T](rec)
			if err != nil {
				return nil, err
			}
			return PT(obj).DeepCopyObject().(client.Object), nil
		},
		fresh: func() client.Object { return PT(new(T)) },
		do: func(ctx context.Context, obj client.Object) (Result, error) {
			return r.Reconcile(ctx, (*T)(obj.(PT)))
		},
		hosted: func(Inherited, fiberHost) {}, deleted: func(Key) {}, halt: func() {},
		move: func(shard.Set, func(flow.Handle)) {}, why: func(Key) ([]why.Cause, bool) { return nil, false },
		flows: func() int { return 0 },
		finalize: func(ctx context.Context, c *client.Client, obj client.Object, change func(client.Object) error) error {
			return client.Modify(ctx, c, obj.(PT), func(o PT) error { return change(o) })
		},
	}
}

func declare(h Host, name string, w work, object client.Object, err error, opts []Option) *Controller {
	c := &Controller{name: name, host: h, client: h.Client(), object: w}
	for _, o := range opts {
		if o != nil {
			o(&c.set)
		}
	}
	c.declared = &declaration{main: &watch{object: object, sameNamespace: true}, related: c.set.watches}
	for _, o := range c.set.primary {
		if o != nil {
			o(c.declared.main)
		}
	}
	err = errors.Join(err, c.set.complete(name), c.declared.check())
	var registry prometheus.Registerer = h.Registry()
	overseer, overseen := h.(Overseer)
	if overseen {
		c.from = overseer.Inherit()
		registry = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": c.from.Cluster}, registry)
	}
	if c.from.Shards != nil {
		c.slots = handover.New(c.from.Shards.Layout(), nil, nil)
		if c.set.leader != nil {
			err = errors.Join(err, fmt.Errorf("%w: replicas that share the objects have no Leader", ErrInvalid))
		}
	}
	c.from.TracerProvider = cmp.Or(c.set.tracers, c.from.TracerProvider)
	if c.log = cmp.Or(c.set.logger, c.from.Logger); c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("controller", name)
	c.place = declaredAt()
	if c.client != nil && !c.set.quiet {
		c.events = NewRecorder(c.client, name)
	}
	metrics := newMetrics(name)
	c.connect(metrics)
	var taken error
	if overseen {
		taken = overseer.Oversee(c)
	}
	if taken == nil {
		if taken = registry.Register(metrics); taken != nil {
			taken = fmt.Errorf("is its name unique? %w", taken)
		}
	}
	if taken != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrInvalid, taken))
	}
	c.err = err
	if checker, ok := h.(Checker); ok {
		checker.Check(c.check)
	} else {
		_ = c.resolve() // run resolves again and returns the error
	}
	h.Add("controller "+name, c.run)
	return c
}

// connect creates the parts.
func (c *Controller) connect(m *metrics) {
	owner, main, ownFinalizer := "reconcile/"+c.name, c.declared.main, ""
	if c.object.cleans {
		ownFinalizer = c.set.finalizer
	}
	c.lifetime, c.pump = &lifetime{}, newPump()
	c.intake = &intake{
		name: c.name, owner: owner, main: main, interval: c.set.interval, cache: c.host.Cache, log: c.log,
		mapErrors: m.mapErrors, wake: c.pump.poke, synced: make(chan struct{}),
	}
	c.namespaces = &namespaces{intake: c.intake, mapper: c.client.Mapper}
	c.follows = &follows{intake: c.intake, scheme: c.client.Scheme, everySlot: c.slots != nil}
	c.workers = &workers{}
	c.scheduler = &scheduler{
		controller: c.name, limit: c.set.workers, each: c.set.each, total: c.set.total, preempt: c.set.preempt,
		retries: retries{backoff: c.set.retry, custom: c.set.delay, attempts: c.set.attempts}, slots: c.slots,
		uidOf:       c.intake.uidOf,
		startWorker: c.workers.start, wake: c.pump.poke, q: newQueue(),
	}
	c.intake.sink = sink{changed: c.scheduler.changed, deleted: c.onDeleted, left: c.onLeft}
	bound := &bindings{
		owner: owner, leader: c.set.leader, shards: c.from.Shards, preempt: c.set.preempt, finalizer: ownFinalizer,
		controller: c.name,
	}
	reporter := &reporter{
		log: c.log, panics: m.panics, onFailure: c.set.onFailure, events: c.events, leader: c.set.leader, main: main,
	}
	caller := &caller{
		client: c.client, object: c.object, main: main, bindings: bound, deadline: c.set.deadline, stuck: c.set.stuck,
		tracer: &tracer{
			spans: tracing.Tracer(c.from.TracerProvider, "reconcile"), controller: c.name, cluster: c.from.Cluster,
			main: main,
		},
		metrics: m, log: c.log, reads: c.scheduler.reads, finish: c.scheduler.finish, report: reporter.report,
	}
	if c.object.cleans {
		caller.finalizer = &finalizer{name: ownFinalizer, change: c.object.finalize, read: caller.read}
	}
	c.workers.next, c.workers.perform, c.workers.replace = c.scheduler.next, caller.perform, c.scheduler.replaceWorker
	c.elections = &elections{leader: c.set.leader, warnAfter: c.set.syncWarning, log: c.log}
	c.sharing = &sharing{slots: c.slots, log: c.log, await: c.intake.awaitSlots, opened: c.reconcileSlots}
	c.inspect = &inspection{
		name: c.name, place: c.place, cluster: c.from.Cluster, declared: c.declared, client: c.client, leader: c.set.leader,
		finalizer: ownFinalizer, lifetime: c.lifetime, intake: c.intake, scheduler: c.scheduler, fibers: c.object.why,
		flows: c.object.flows,
	}
	m.counts, m.ages = c.scheduler.counts, c.scheduler.ages
	c.object.hosted(c.from, fiberHost{
		client: c.client, log: c.log, slots: c.slots, finalizer: ownFinalizer, trigger: c.Trigger, fail: c.fail,
		recovered: c.scheduler.recovered,
		values: func(ctx context.Context, k Key, slot int, waiting *binding.Waiting) context.Context {
			return bound.ofFiber(ctx, c.scheduler.termOf(k), k, slot, waiting)
		},
	})
}

// check returns the errors of the declaration.
func (c *Controller) check() error {
	if err := errors.Join(c.err, c.resolve()); err != nil {
		return c.failure(err)
	}
	return nil
}

// resolve finds the kinds of the watches.
func (c *Controller) resolve() error {
	if c.client == nil {
		return nil // the host reports why
	}
	return c.declared.resolve(c.client.Scheme(), c.host.Cache())
}

func (c *Controller) failure(err error) error {
	return fmt.Errorf("%s: cannot run controller %q: %w", c.place, c.name, err)
}

// Name returns the name of the controller.
func (c *Controller) Name() string { return c.name }

// Trigger makes the controller reconcile an object for a reason that no watch reports. It does nothing if the object
// does not exist. An object in back-off is reconciled when the back-off is over.
func (c *Controller) Trigger(k Key, source string) {
	c.scheduler.changed(k, Reason{Type: Triggered, Source: source, Key: k}, high, c.intake.rankOf(k), nil)
}

// Unfollow removes a source that [Follow] added. It does nothing if there is no such source.
func (c *Controller) Unfollow(primary Key, name string) { c.follows.remove(primary, name) }

// Failures returns the objects whose last reconciliation failed, ordered by Since, oldest first.
func (c *Controller) Failures() (all []Failure) {
	for _, f := range c.scheduler.workload(anyFailure).failing {
		all = append(all, *f.Failure)
	}
	slices.SortFunc(all, byAge)
	return all
}

func anyFailure(Key, Class) bool { return true }

// Describe returns the current state of the controller, with at most the given number of failures. A negative number
// means all. A call with 0 is cheap.
func (c *Controller) Describe(failures int) inspect.Controller {
	return c.inspect.describe(failures, anyFailure)
}

// Why explains why the controller does not make progress on an object of its kind. The causes include:
//
//   - the process does not lead, or the watches are not listed yet;
//   - no selector matches the object;
//   - the object waits in the queue, or for a time;
//   - the reconciliation failed, or has been running for long;
//   - the fiber waits.
//
// If the controller has nothing left to do, Why returns why.Ended. It returns nil for other kinds and for objects that
// do not exist. Why implements why.Explainer and is safe for concurrent use. It sends a request only about an object
// that the controller does not know.
func (c *Controller) Why(ctx context.Context, of why.Object) []why.Cause {
	return c.inspect.why(ctx, of)
}

// Finalizer returns the finalizer that the controller adds to objects of a kind; ok is false if it adds none.
func (c *Controller) Finalizer(group, kind string) (name string, ok bool) {
	k, _ := c.declared.reconciled()
	return c.set.finalizer, c.object.cleans && k.Group == group && k.Kind == kind
}

// Rights returns the permissions that a controller needs from the API server. A controller gets, lists and watches the
// kinds of its watches. It patches the finalizer of a [Cleaner], and the status with [Flow]. The permissions include
// those to write [Events], those for the Lease of its [Leader], and those declared with [Needs]. The kinds of [Follow]
// are not known in advance. Rights omits kinds that the scheme does not know; Run reports them.
//
// [Events]: https://pkg.go.dev/github.com/fairlead-io/fairlead/reconcile#Recorder
func (c *Controller) Rights() []rights.Right {
	out := slices.Clone(c.set.needs)
	if c.client != nil {
		out = append(out, c.declared.rights(c.client.Scheme(), c.object.cleans, c.object.saves)...)
	}
	if c.events != nil {
		out = append(out, rights.Events())
	}
	if l, ok := c.set.leader.(rights.Asker); ok {
		out = append(out, l.Rights()...)
	}
	return out
}

// Gain implements [group.Participant]. The controller reconciles the objects of these slots once all of its watches
// show every write of the former holder.
func (c *Controller) Gain(_ context.Context, slots shard.Set) error {
	if c.slots == nil {
		return fmt.Errorf("cannot gain slots: controller %q works on everything: its host shares nothing", c.name)
	}
	c.sharing.gain(slots)
	return nil
}

// Lose implements [group.Participant]. Objects that leave with their slots are not cleaned up: no Cleanup and no Undo
// runs.
func (c *Controller) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if c.slots == nil {
		return
	}
	c.sharing.lose(slots)
	drain := c.scheduler.lose(slots)
	c.object.move(slots, func(f flow.Handle) { f.Interrupt(errMoved) })
	drain.Wait(ctx, func(busy shard.Set, cause error) {
		c.scheduler.stop(busy, cause)
		c.object.move(busy, func(f flow.Handle) { f.Cancel(fmt.Errorf("%w: %w", flow.ErrMoved, cause)) })
	}, quiet)
}
