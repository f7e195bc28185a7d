package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// run works until ctx ends. It returns when all reconciliations have returned.
func (c *Controller) run(ctx context.Context) error {
	defer c.over()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := c.open(ctx, stop); err != nil {
		if ctx.Err() != nil && !meta.IsNoMatchError(err) {
			return nil // stopped during the start, which is not a failure
		}
		return c.failure(err)
	}
	defer c.close()
	var lead sync.WaitGroup
	var failed error
	lead.Go(func() {
		if failed = c.lead(ctx); failed != nil {
			stop(failed)
		}
	})
	if c.slots != nil {
		lead.Go(func() { c.openSlots(ctx) })
	}
	c.pump(ctx)
	lead.Wait()
	if err := context.Cause(ctx); failed == nil && errors.Is(err, ErrEngineClosed) {
		return c.failure(err)
	}
	return failed
}

// over records that run has returned.
func (c *Controller) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// reopening is the back-off between attempts to start the watches, if the host is degraded.
var reopening = backoff.Policy{Base: time.Second, Cap: 30 * time.Second, Factor: 2, Floor: time.Second}

// open starts the watches. If the host is degraded, it retries.
func (c *Controller) open(ctx context.Context, fail func(error)) error {
	if c.err != nil {
		return c.err
	}
	if c.client == nil || c.host.Cache() == nil {
		return errors.New("the host has no client or no cache")
	}
	if err := c.resolve(); err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err := c.subscribeAll(ctx, fail)
		c.mu.Lock()
		c.problem = err
		c.mu.Unlock()
		if err == nil {
			return nil
		}
		c.close()
		if !c.from.Degraded || ctx.Err() != nil {
			return err
		}
		c.log.ErrorContext(ctx, "cannot start, trying again", "error", err)
		pause := time.NewTimer(reopening.Delay(attempt, rand.Float64))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// subscribeAll starts each watch once.
func (c *Controller) subscribeAll(ctx context.Context, fail func(error)) error {
	c.mu.Lock()
	c.life, c.fail = ctx, fail
	c.mu.Unlock()
	p, err := c.subscribe(c.main, subscription{main: true})
	errs := []error{err}
	c.mu.Lock()
	c.primary = p
	c.mu.Unlock()
	for _, w := range c.set.watches {
		var err error
		if w.everySlot, err = c.spread(w); err == nil {
			_, err = c.subscribe(w, subscription{})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...) // all errors, so that an operator sees every missing kind at once
}

// brokenGrace is how long a broken controller waits before it ends itself. If its host stops meanwhile, there is no
// failure.
const brokenGrace = time.Second

// breaks ends a controller that can no longer work. run returns the error, unless the controller is already ending.
func (c *Controller) breaks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil || c.life.Err() != nil || c.broken != nil {
		return
	}
	c.log.Error("has failed permanently", "error", err)
	fail := c.fail
	c.broken = time.AfterFunc(brokenGrace, func() { fail(err) })
}

// close ends the watches and waits for the workers.
func (c *Controller) close() {
	c.endTerm()
	c.mu.Lock()
	c.life, c.fail = nil, nil
	if c.broken != nil {
		c.broken.Stop()
	}
	intakes := c.intakes
	c.intakes, c.primary = nil, nil
	clear(c.follows)
	c.mu.Unlock()
	for _, s := range intakes {
		s.drain.Close()
	}
	c.wg.Wait()
	for _, s := range intakes {
		s.handle.Release()
	}
}

// lead runs the workers while this process leads, after all watches are synced. It returns nil when ctx has ended, and
// an error if the election fails.
func (c *Controller) lead(ctx context.Context) error {
	if !c.awaitSync(ctx) {
		return nil
	}
	for ctx.Err() == nil {
		term, done, err := c.awaitTerm(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return c.failure(err)
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
	c.wg.Wait() // endTerm has stopped further starts
	if c.object.halt != nil {
		c.object.halt()
	}
	end(nil)
}

func (c *Controller) awaitSync(ctx context.Context) bool {
	defer remind(c.set.syncWarning, func(waited time.Duration) {
		c.mu.Lock()
		unlisted := c.unlisted()
		c.mu.Unlock()
		for _, s := range unlisted {
			c.log.WarnContext(ctx, "waits for the first list", "watch", s.watch.name, "for", waited,
				"status", strings.Join(s.handle.Unlisted(), "; "))
		}
	})()
	select {
	case <-ctx.Done():
		return false
	case <-c.synced:
		return true
	}
}

// unlisted returns the watches that must be listed before the first reconciliation. The caller holds c.mu.
func (c *Controller) unlisted() []*intake {
	return slices.DeleteFunc(slices.Clone(c.intakes), func(s *intake) bool { return s.synced || s.sub.follow != nil })
}

func (c *Controller) awaitTerm(ctx context.Context) (term context.Context, done func(), err error) {
	l := c.set.leader
	if l == nil {
		return ctx, func() {}, nil
	}
	defer remind(c.set.syncWarning, func(waited time.Duration) {
		leader, err := leaderOf(l)
		if err != nil {
			c.log.WarnContext(ctx, "waits for leadership", "for", waited, "error", err)
			return
		}
		c.log.InfoContext(ctx, "waits for leadership", "for", waited, "leader", leader)
	})()
	if term, done, err = l.Lead(ctx); err != nil {
		return nil, nil, fmt.Errorf("cannot take part in the election: %w", err)
	}
	return term, done, nil
}

// leaderOf returns the current leader, or an error if it is not known. It returns neither if the Leadership has no
// Status method. Package lease has one.
func leaderOf(l Leadership) (leader string, err error) {
	if asked, ok := l.(interface {
		Status() (leader string, err error)
	}); ok {
		return asked.Status()
	}
	return "", nil
}

// remind calls fn after d, then after twice the time, and so on, until stop is called. stop waits for a running call.
// fn receives the time since remind was called.
func remind(d time.Duration, fn func(waited time.Duration)) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	ended, waited := false, d
	again := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		fn(waited)
		timer.Reset(waited)
		waited *= 2
	}
	mu.Lock()
	timer = time.AfterFunc(d, again)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}

func (c *Controller) beginTerm(ctx, term context.Context) {
	c.mu.Lock()
	c.terms++
	again := c.terms > 1
	st := c.primary
	c.mu.Unlock()
	if again && st != nil { // the previous leader may have left unfinished work, which no event reports
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

// endTerm makes the workers start no further reconciliation. The contexts of running ones end with that of the term, or
// of the host.
func (c *Controller) endTerm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = nil
}
