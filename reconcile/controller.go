package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

// Controller reconciles the objects of one kind. It is safe for concurrent use.
type Controller struct {
	name    string
	owner   string // of writes, in the ledger of the store
	host    Host
	client  *client.Client
	set     settings
	err     error     // in the declaration; returned when the host runs
	place   string    // file:line of the declaration
	from    Inherited // inherited from the host
	object  work
	main    *watch
	metrics *metrics
	log     *slog.Logger
	tracer  trace.Tracer // nil: no spans
	events  *Recorder    // about failures; nil: none
	unheard atomic.Bool  // the last Event could not be written
	wake    chan struct{}
	now     func() time.Time

	slots    *handover.Slots // whose objects are reconciled; nil: replicas do not share the objects
	arrivals arrivals        // locked before slots, not with mu

	mu      sync.Mutex // guards everything below; never held while user code runs
	q       *queue
	life    context.Context //nolint:containedctx // context of run; nil before and after it
	fail    func(error)     // ends run with an error
	ended   bool            // run has returned
	kindOf  string          // the reconciled kind, once it is known
	problem error           // of the last attempt to start
	broken  *time.Timer     // ends run after brokenGrace; set by breaks
	term    context.Context //nolint:containedctx // context of the leadership; nil while no work may start
	terms   int
	workers int
	wg      sync.WaitGroup // workers
	total   rate           // limit over all objects
	paced   time.Time      // when the pump checks total again; zero: not scheduled
	primary *intake
	intakes []*intake
	follows map[Key]map[string]*follow
	synced  chan struct{}
	runs    runs
	done    done
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
	// gone runs when an object no longer exists. halt ends the remaining work when no reconciliation runs. Both may be
	// nil.
	gone func(k Key)
	halt func()
	// move calls end for the fibers of slots that leave, so that another process resumes them. It may be nil.
	move func(slots shard.Set, end func(flow.Handle))
	// why returns why the work on an object does not end, and whether there is any. It may be nil.
	why func(k Key) (causes []why.Cause, works bool)
	// hosted receives the settings that the controller inherits; it may be nil.
	hosted   func(Inherited)
	finalize func(ctx context.Context, c *client.Client, obj client.Object, change func(client.Object) error) error
}

// New declares a controller that reconciles the objects of type T and runs with the host. T is a Go type that the
// scheme of the client knows, or unstructured.Unstructured with [Primary]([Kind](…)). The name must be unique on the
// host.
//
// The Run of the host returns the errors of the declaration, with file and line. The fairlead runtime does so before
// any request, together with the errors of all other declarations.
func New[T any, PT client.ObjectOf[T]](h Host, name string, r Reconciler[T], opts ...Option) *Controller {
	var err error
	if f, ok := r.(Func[T]); r == nil || ok && f == nil {
		err = fmt.Errorf("%w: no reconciler", ErrInvalid)
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
		finalize: func(ctx context.Context, c *client.Client, obj client.Object, change func(client.Object) error) error {
			return client.Modify(ctx, c, obj.(PT), func(o PT) error { return change(o) })
		},
	}
}

func declare(h Host, name string, w work, object client.Object, err error, opts []Option) *Controller {
	c := &Controller{
		name: name, owner: "reconcile/" + name, host: h, client: h.Client(), object: w, q: newQueue(),
		wake: make(chan struct{}, 1), now: time.Now, follows: map[Key]map[string]*follow{}, synced: make(chan struct{}),
	}
	for _, o := range opts {
		if o != nil {
			o(&c.set)
		}
	}
	err = errors.Join(err, c.set.complete(name))
	c.total = c.set.total
	c.main = &watch{object: object}
	for _, o := range c.set.primary {
		if o != nil {
			o(c.main)
		}
	}
	for _, w := range append([]*watch{c.main}, c.set.watches...) {
		err = errors.Join(err, w.check())
	}
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
	c.metrics = newMetrics(c)
	if e := registry.Register(c.metrics); e != nil {
		err = errors.Join(err, fmt.Errorf("%w: is its name unique? %w", ErrInvalid, e))
	}
	c.err, c.place = err, place.Outside("github.com/fairlead-io/fairlead/reconcile",
		"github.com/fairlead-io/fairlead/dependent")
	if c.log = cmp.Or(c.set.logger, c.from.Logger); c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("controller", name)
	c.traces()
	if c.client != nil && !c.set.quiet {
		c.events = NewRecorder(c.client, name)
	}
	if w.hosted != nil {
		w.hosted(c.from)
	}
	if overseen {
		overseer.Oversee(c)
	}
	if checker, ok := h.(Checker); ok {
		checker.Check(c.check)
	} else {
		_ = c.resolve() // run resolves again and returns the error
	}
	h.Add("controller "+name, c.run)
	return c
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
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, w := range append([]*watch{c.main}, c.set.watches...) {
		errs = append(errs, w.resolve(c.client.Scheme()))
	}
	c.kindOf = c.main.kind.Kind + "." + c.main.kind.GroupVersion().String()
	err := errors.Join(errs...)
	if err == nil { // other watches of the same kinds may ask for metadata only
		for _, w := range append([]*watch{c.main}, c.set.watches...) {
			c.host.Cache().Expect(w.request())
		}
	}
	return err
}

func (c *Controller) failure(err error) error {
	return fmt.Errorf("%s: cannot run controller %q: %w", c.place, c.name, err)
}

// Name returns the name of the controller.
func (c *Controller) Name() string { return c.name }

// Trigger makes the controller reconcile an object for a reason that no watch reports. It does nothing if the object
// does not exist. An object in back-off is reconciled when the back-off is over.
func (c *Controller) Trigger(k Key, source string) {
	c.add(k, Reason{Type: Triggered, Source: source, Key: k}, high, nil)
}

// add records a reason to reconcile an object. now is the state of the object in the event; it is nil if the event is
// about another object.
func (c *Controller) add(k Key, why Reason, p priority, now *facts) {
	var stop *reconciliation
	c.mu.Lock()
	slot, works := c.slotOf(k, now)
	if !works {
		c.mu.Unlock()
		return
	}
	it := c.q.item(k)
	it.slot = slot
	if now != nil && it.current != nil && *now == it.current.facts { // that reconciliation already works on this state
		c.mu.Unlock()
		return
	}
	it.reasons.add(why)
	it.left = it.left && now == nil
	switch {
	case it.current != nil:
		if now != nil {
			it.seen = now
			if c.set.preempt && it.current.facts.uid != "" && it.current.facts.differs(*now) {
				stop = it.current
			}
		}
	case it.fail != nil && now != nil && it.fail.facts.differs(*now):
		it.fail = nil
		c.admit(it, p)
	case it.fail != nil && it.fail.class == Stopped:
		if why.Type == Interval && errors.Is(it.fail.err, ErrExhausted) {
			c.admit(it, p)
		}
	case it.state == waiting && it.dueFor == Retried: // in back-off: an event does not shorten it
	default:
		c.admit(it, p)
	}
	c.spawn()
	c.mu.Unlock()
	if stop != nil {
		stop.stop(ErrPreempted)
	}
}

// gone handles the deletion of an object.
func (c *Controller) gone(k Key, why Reason) {
	var stop *reconciliation
	c.mu.Lock()
	it := c.q.items[k]
	switch {
	case it == nil:
	case it.current != nil:
		it.reasons.add(why)
		it.seen = &facts{}
		if c.set.preempt {
			stop = it.current
		}
	default:
		c.q.forget(it)
	}
	c.mu.Unlock()
	if stop != nil {
		stop.stop(ErrPreempted)
	}
	c.vanished(k)
	c.unfollowAll(k)
}

// left forgets an object whose slot is no longer held. A running reconciliation finishes, but is not followed by
// another.
func (c *Controller) left(k Key) {
	c.mu.Lock()
	it := c.q.items[k]
	switch {
	case it == nil:
	case it.current != nil:
		it.reasons, it.left = reasons{}, true
	default:
		c.q.forget(it)
	}
	c.mu.Unlock()
	c.unfollowAll(k)
}

// vanished ends the work for an object that no longer exists.
func (c *Controller) vanished(k Key) {
	if c.object.gone != nil {
		c.object.gone(k)
	}
}

// admit makes an item ready as soon as the rate limit allows it. The caller holds c.mu.
func (c *Controller) admit(it *item, p priority) {
	if free := it.rate.free(); !free.IsZero() && free.After(c.now()) {
		if it.state == waiting && it.dueFor == "" {
			return
		}
		it.prio = p
		c.waitUntil(it, free, "")
		return
	}
	if it.state != ready {
		it.came = c.now()
	}
	c.q.makeReady(it, p)
}

// waitUntil schedules an item. The caller holds c.mu.
func (c *Controller) waitUntil(it *item, at time.Time, why ReasonType) {
	c.q.wait(it, at, why)
	if c.q.times[0] == it {
		c.poke()
	}
}

// expire makes due items ready. It returns the next due time, or zero if there is none.
func (c *Controller) expire() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for it := c.q.expired(now); it != nil; it = c.q.expired(now) {
		if it.dueFor != "" {
			it.reasons.add(Reason{Type: it.dueFor, Key: it.key})
		}
		c.admit(it, high)
	}
	c.spawn()
	next := time.Time{}
	if len(c.q.times) > 0 {
		next = c.q.times[0].due
	}
	if !c.paced.After(now) {
		c.paced = time.Time{}
	}
	if !c.paced.IsZero() && (next.IsZero() || c.paced.Before(next)) {
		next = c.paced
	}
	return next
}

// spawn starts workers for ready items, unless the total rate limit forbids it. The caller holds c.mu.
func (c *Controller) spawn() {
	for c.term != nil && c.workers < c.set.workers && c.workers < c.q.running+c.q.ready {
		if c.held() {
			return
		}
		c.workers++
		c.wg.Go(c.work)
	}
}

// held reports whether the total rate limit forbids a start now. If so, it makes the pump check again when a start is
// allowed. The caller holds c.mu.
func (c *Controller) held() bool {
	free := c.total.free()
	if !free.After(c.now()) {
		return false
	}
	if c.q.ready > 0 && !c.paced.Equal(free) {
		c.paced = free
		c.poke()
	}
	return true
}

func (c *Controller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Controller) kind() schema.GroupVersionKind { return c.main.kind }
