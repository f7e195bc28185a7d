package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// intake is an open watch: a claim on a store, and a position in its log of changes.
type intake struct {
	watch  *watch
	handle *cache.Handle
	drain  *store.Drainer
	sub    subscription
	synced bool // guarded by Controller.mu; only the pump writes it, and reads it without the lock
}

// rules returns the declaration with the current functions of the user. Follow may replace it.
func (s *intake) rules() *watch {
	if s.sub.follow != nil {
		return s.sub.follow.watch.Load()
	}
	return s.watch
}

// subscription is the purpose of a source.
type subscription struct {
	main   bool
	follow *follow // the source of one primary; nil otherwise
}

// takeAtOnce bounds the events that are taken from one source before the next source has its turn.
const takeAtOnce = 256

// subscribe opens a watch.
func (c *Controller) subscribe(w *watch, sub subscription) (*intake, error) {
	h, err := w.open(c.host.Cache())
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	s := &intake{watch: w, handle: h, sub: sub}
	opt := store.SubscribeOptions{Name: c.name + "/" + w.name, HoldWrites: c.owner, Wake: c.poke}
	switch {
	case sub.main:
		opt.Resync = max(c.set.interval, 0)
	case sub.follow != nil:
		k := sub.follow.primary
		opt.PrimaryOf = func(*cache.Record) (Key, bool) { return k, true }
		if h.HasSynced() {
			opt.From = store.FromNow
		}
	default:
		opt.PrimaryOf = func(r *cache.Record) (Key, bool) {
			keys, err := w.keys(r, c.primaryInfo())
			if err != nil || len(keys) != 1 {
				return Key{}, false
			}
			return keys[0], true
		}
	}
	if len(w.filters) > 0 || sub.follow != nil {
		opt.Filter = func(r *cache.Record) bool {
			ok, err := s.rules().matches(r)
			if err != nil {
				c.complain("the filter of a watch failed", err, "watch", w.name, "key", r.Key().String())
			}
			return ok
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil || c.life.Err() != nil {
		h.Release()
		return nil, fmt.Errorf("cannot watch %s: %w", w.name, errNotRunning)
	}
	ctx := c.life
	s.drain = h.Drain(store.DrainOptions{
		SubscribeOptions: opt, Batch: takeAtOnce,
		Consume: func(events []store.Event) (more bool) { return c.take(ctx, s, events) },
	})
	c.intakes = append(c.intakes[:len(c.intakes):len(c.intakes)], s)
	c.poke()
	return s, nil
}

func (c *Controller) primaryInfo() primary {
	p := primary{kind: c.kind()}
	c.mu.Lock()
	st := c.primary
	c.mu.Unlock()
	if st != nil {
		p.namespaced = st.handle.Options().Namespaced
	}
	return p
}

// pump moves events and due items into the queue until ctx ends. An idle controller has no other goroutine.
func (c *Controller) pump(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.mu.Lock()
		intakes := c.intakes
		c.mu.Unlock()
		more := false
		for _, s := range intakes {
			more = s.drain.Step() || more
		}
		next := c.expire()
		if more {
			continue
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = max(0, next.Sub(c.now()))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// take handles a batch of events. It reports whether the controller still runs.
func (c *Controller) take(ctx context.Context, s *intake, events []store.Event) (more bool) {
	for i := range events {
		if ctx.Err() != nil {
			return false
		}
		c.event(ctx, s, &events[i])
	}
	return true
}

func (c *Controller) event(ctx context.Context, s *intake, e *store.Event) {
	switch e.Type {
	case store.Synced:
		c.intakeSynced(s)
		return
	case store.Epoch:
		c.log.WarnContext(ctx, "the history of the server was rolled back", "watch", s.watch.name, "reason", e.Reason)
		return
	case store.Left: // another replica reconciles the object
		if s.sub.main {
			c.left(e.Key)
		}
		return
	case store.QuarantinedObject:
		c.log.ErrorContext(ctx, "an object cannot be decoded", "watch", s.watch.name, "key", e.Key.String(), "error", e.Err)
		return
	case store.Modified:
		ok, err := s.rules().concerns(e.Prior, e.Object)
		if err != nil {
			c.complain("the filter of a watch failed", err, "watch", s.watch.name, "key", e.Key.String())
		} else if !ok {
			return
		}
	}
	why := reasonOf(*e, s.watch.name)
	p := high
	if why.Type == Initial || why.Type == Interval {
		p = low
	}
	switch {
	case s.sub.follow != nil:
		c.add(s.sub.follow.primary, why, high, nil)
	case s.sub.main && e.Type == store.Deleted:
		c.gone(e.Key, why)
	case s.sub.main:
		now := factsOf(e.Object)
		c.add(e.Key, why, p, &now)
	case why.Type == Initial && !s.synced: // all primaries are reconciled after all sources are listed
	default:
		c.secondary(ctx, s, e, why, p)
	}
}

// secondary adds the primaries that an event concerns. It maps both the new and the previous state.
func (c *Controller) secondary(ctx context.Context, s *intake, e *store.Event, why Reason, prio priority) {
	p := c.primaryInfo()
	keys := map[Key]bool{}
	for _, r := range []*cache.Record{e.Object, e.Prior} {
		if r == nil {
			continue
		}
		mapped, err := s.watch.keys(r, p)
		if err != nil {
			c.complain("cannot map an object to those that it concerns", err, "watch", s.watch.name, "key", e.Key.String())
			c.metrics.mapErrors.WithLabelValues(s.watch.name).Inc()
			continue
		}
		for _, k := range mapped {
			if !keys[k] {
				keys[k] = true
				c.add(k, why, prio, nil)
			}
		}
	}
}

// intakeSynced records that the initial objects of a source are in the queue.
func (c *Controller) intakeSynced(s *intake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.synced = true
	for _, o := range c.intakes {
		if !o.synced && o.sub.follow == nil {
			return
		}
	}
	if c.primary == nil { // not all sources are open yet
		return
	}
	select {
	case <-c.synced:
	default:
		close(c.synced)
	}
}
