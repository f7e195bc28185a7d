package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/store"
)

// Controller reconciles the objects of one kind. It is safe for concurrent use.
type Controller struct {
	name    string
	owner   string // of writes, in the ledger of the store
	host    Host
	client  *client.Client
	set     settings
	err     error  // of the declaration, returned when the host runs
	place   string // of the declaration
	object  work
	main    *watch
	metrics *metrics
	log     *slog.Logger
	wake    chan struct{}
	now     func() time.Time

	mu      sync.Mutex // guards everything below; never held while user code runs
	q       *queue
	life    context.Context //nolint:containedctx // the lifetime of Run; nil before and after
	term    context.Context //nolint:containedctx // of the leadership; nil while nothing may be started
	terms   int
	workers int
	wg      sync.WaitGroup // workers
	total   rate           // of all objects
	paced   time.Time      // when the pump, as it knows, has to look again at what total holds back; may be zero
	primary *intake
	intakes []*intake
	follows map[Key]map[string]*follow
	synced  chan struct{}
}

// work is what is done with an object, without its Go type.
type work struct {
	cleans bool
	// decode returns a copy of the object of a record that belongs to the caller.
	decode func(r *store.Record) (client.Object, error)
	fresh  func() client.Object
	do     func(ctx context.Context, obj client.Object) (Result, error)
	clean  func(ctx context.Context, obj client.Object) (Result, error)
	// gone is told of objects that do not exist any more; halt ends what is at work, when no reconciliation is. Both may be nil.
	gone func(k Key)
	halt func()
	// finalize adds or removes the finalizer of obj.
	finalize func(ctx context.Context, c *client.Client, obj client.Object, change func(client.Object) error) error
}

// New declares a controller that reconciles the objects of type T and runs with the host. T is a Go type that the scheme of the
// client knows, or unstructured.Unstructured with [Primary]([Kind](…)). Its name is unique on the host. What is wrong with
// the declaration is returned by the host's Run, with file and line; by that of the fairlead runtime before any request is made, together
// with all that is wrong with others.
func New[T any, PT client.ObjectOf[T]](h Host, name string, r Reconciler[T], opts ...Option) *Controller {
	var err error
	if r == nil {
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

// workOf makes a reconciler forget its type.
func workOf[T any, PT client.ObjectOf[T]](r Reconciler[T]) work {
	return work{
		decode: func(rec *store.Record) (client.Object, error) {
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
		o(&c.set)
	}
	err = errors.Join(err, c.set.complete(name))
	c.log, c.total = c.set.logger, c.set.total
	c.main = &watch{object: object}
	for _, o := range c.set.primary {
		o(c.main)
	}
	for _, w := range append([]*watch{c.main}, c.set.watches...) {
		err = errors.Join(err, w.check())
	}
	c.metrics = newMetrics(c)
	if e := h.Registry().Register(c.metrics); e != nil {
		err = errors.Join(err, fmt.Errorf("%w: is its name unique? %w", ErrInvalid, e))
	}
	c.err, c.place = err, place.Outside("github.com/fairlead-io/fairlead/reconcile")
	if checker, ok := h.(Checker); ok {
		checker.Check(c.check)
	}
	h.Add("controller "+name, c.run)
	return c
}

// check says what is wrong with the declaration.
func (c *Controller) check() error {
	err := c.err
	if c.client != nil {
		for _, w := range append([]*watch{c.main}, c.set.watches...) {
			err = errors.Join(err, w.resolve(c.client.Scheme()))
		}
	}
	if err == nil {
		return nil
	}
	return c.failure(err)
}

func (c *Controller) failure(err error) error {
	return fmt.Errorf("%s: cannot run controller %q: %w", c.place, c.name, err)
}

// Name returns the name of the controller.
func (c *Controller) Name() string { return c.name }

// run works until ctx ends, and returns when all reconciliations have.
func (c *Controller) run(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		c.close()
		if ctx.Err() != nil {
			return nil // stopped while it started, which is no failure
		}
		return c.failure(err)
	}
	defer c.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var lead sync.WaitGroup
	var failed error
	lead.Go(func() {
		if failed = c.lead(ctx); failed != nil {
			stop(failed)
		}
	})
	c.pump(ctx)
	lead.Wait()
	return failed
}

// open starts the watches.
func (c *Controller) open(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	if c.client == nil || c.host.Cache() == nil {
		return errors.New("the host has no client or no cache")
	}
	if err := c.main.resolve(c.client.Scheme()); err != nil {
		return err
	}
	c.mu.Lock()
	c.life = ctx
	c.mu.Unlock()
	p, err := c.subscribe(c.main, subscription{main: true})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.primary = p
	c.mu.Unlock()
	for _, w := range c.set.watches {
		if err := w.resolve(c.client.Scheme()); err != nil {
			return err
		}
		if _, err := c.subscribe(w, subscription{}); err != nil {
			return err
		}
	}
	return nil
}

// close ends the watches and waits for the workers.
func (c *Controller) close() {
	c.endTerm()
	c.mu.Lock()
	c.life = nil
	intakes := c.intakes
	c.intakes, c.primary = nil, nil
	clear(c.follows)
	c.mu.Unlock()
	for _, s := range intakes {
		s.cursor.Close()
	}
	c.wg.Wait()
	for _, s := range intakes {
		s.handle.Release()
	}
}

// lead lets the workers work while this process leads, from when everything was listed once, until ctx ends or leadership is not to be
// had any more.
func (c *Controller) lead(ctx context.Context) error {
	if !c.awaitSync(ctx) {
		return nil
	}
	for ctx.Err() == nil {
		term, done := ctx, func() {}
		if l := c.set.leader; l != nil {
			var err error
			if term, done, err = l.Lead(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return c.failure(fmt.Errorf("cannot take part in the election: %w", err))
			}
		}
		c.serve(ctx, term)
		done()
	}
	return nil
}

// serve works in one term and returns when all of its work has ended.
func (c *Controller) serve(ctx, term context.Context) {
	term, end := context.WithCancelCause(term)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	c.beginTerm(ctx, term)
	<-term.Done()
	c.endTerm()
	c.wg.Wait() // nothing is begun any more
	if c.object.halt != nil {
		c.object.halt()
	}
	end(nil)
}

func (c *Controller) awaitSync(ctx context.Context) bool {
	late := time.NewTimer(c.set.syncWarning)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.synced:
			return true
		case <-late.C:
			c.mu.Lock()
			for _, s := range c.intakes {
				if !s.synced {
					c.log.WarnContext(ctx, "waits for the first list", "watch", s.watch.name, "status", fmt.Sprint(s.handle.Statuses()))
				}
			}
			c.mu.Unlock()
			late.Reset(c.set.syncWarning)
		}
	}
}

func (c *Controller) beginTerm(ctx, term context.Context) {
	c.mu.Lock()
	c.terms++
	again := c.terms > 1
	st := c.primary
	c.mu.Unlock()
	if again && st != nil { // another one may have left work half done that no event tells of
		for r := range st.handle.Snapshot().All() {
			c.add(r.Key(), Reason{Type: Leading, Source: c.main.name, Key: r.Key(), Version: r.Version()}, low, nil)
		}
	}
	if c.set.leader != nil {
		c.log.InfoContext(ctx, "this process leads")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life != nil && term.Err() == nil {
		c.term = term
		c.spawn()
	}
}

// endTerm has the workers begin nothing more; the contexts of what they do have ended with that of the term, or of the host.
func (c *Controller) endTerm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = nil
}

// Trigger has an object reconciled, for a reason that no watch knows of. An object that does not exist is not; one that is
// in back-off is when that is over.
func (c *Controller) Trigger(k Key, source string) {
	c.add(k, Reason{Type: Triggered, Source: source, Key: k}, high, nil)
}

// add notes a reason to reconcile an object. now is what is known of the object if the event is about itself.
func (c *Controller) add(k Key, why Reason, p priority, now *facts) {
	var stop *run
	c.mu.Lock()
	it := c.q.item(k)
	if now != nil && it.run != nil && *now == it.run.facts { // it works on this state already
		c.mu.Unlock()
		return
	}
	it.reasons.add(why)
	switch {
	case it.run != nil:
		if now != nil {
			it.seen = now
			if c.set.preempt && it.run.facts.uid != "" && it.run.facts.differs(*now) {
				stop = it.run
			}
		}
	case it.fail != nil && now != nil && it.fail.facts.differs(*now):
		it.fail = nil
		c.admit(it, p)
	case it.fail != nil && it.fail.class == Stopped:
		if why.Type == Interval && errors.Is(it.fail.err, ErrExhausted) {
			c.admit(it, p)
		}
	case it.state == waiting && it.dueFor == Retried: // in back-off: its time stands
	default:
		c.admit(it, p)
	}
	c.spawn()
	c.mu.Unlock()
	if stop != nil {
		stop.stop(ErrPreempted)
	}
}

// gone notes that an object does not exist any more.
func (c *Controller) gone(k Key, why Reason) {
	var stop *run
	c.mu.Lock()
	it := c.q.items[k]
	switch {
	case it == nil:
	case it.run != nil:
		it.reasons.add(why)
		it.seen = &facts{}
		if c.set.preempt {
			stop = it.run
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

// vanished ends what is at work for an object that does not exist any more.
func (c *Controller) vanished(k Key) {
	if c.object.gone != nil {
		c.object.gone(k)
	}
}

// admit makes an item ready, as soon as the rate limit allows it. Under mu.
func (c *Controller) admit(it *item, p priority) {
	if c.set.rate > 0 && len(it.starts) >= c.set.rate {
		now, free := c.now(), it.starts[0].Add(c.set.ratePer)
		if free.After(now) {
			if it.state == waiting && it.dueFor == "" {
				return
			}
			it.prio = p
			c.waitUntil(it, free, "")
			return
		}
	}
	c.q.makeReady(it, p)
}

// waitUntil schedules an item. Under mu.
func (c *Controller) waitUntil(it *item, at time.Time, why ReasonType) {
	c.q.wait(it, at, why)
	if c.q.times[0] == it {
		c.poke()
	}
}

// expire makes ready what is due and returns when the next one is; the zero time if none is.
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

// spawn starts workers for what is ready, unless the rate of all objects holds it back. Under mu.
func (c *Controller) spawn() {
	for c.term != nil && c.workers < c.set.workers && c.workers < c.q.running+c.q.ready {
		if c.held() {
			return
		}
		c.workers++
		c.wg.Go(c.work)
	}
}

// held says whether the rate of all objects allows no start now. Then the pump looks again when it does. Under mu.
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
