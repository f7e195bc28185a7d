package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// run works until ctx ends. It returns when all reconciliations have returned.
func (c *Controller) run(ctx context.Context) error {
	defer c.lifetime.over()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := c.open(ctx, stop); err != nil {
		_, absent := errors.AsType[*absentError](err)
		if ctx.Err() != nil && (absent || !meta.IsNoMatchError(err)) {
			return nil // stopped during the start, which is not a failure
		}
		return c.failure(err)
	}
	defer c.close()
	var running sync.WaitGroup
	running.Go(func() { c.openAbsent(ctx) })
	var failed error
	running.Go(func() {
		if failed = c.lead(ctx); failed != nil {
			stop(failed)
		}
	})
	if c.slots != nil {
		running.Go(func() { c.sharing.run(ctx) })
	}
	c.pump.run(ctx, func() (more bool, next time.Time) { return c.intake.step(), c.scheduler.expire() })
	running.Wait()
	if err := context.Cause(ctx); failed == nil && errors.Is(err, ErrEngineClosed) {
		return c.failure(err)
	}
	return failed
}

// asking is the back-off between questions whether an optional kind is served.
var asking = backoff.Policy{Base: time.Second, Cap: 10 * time.Second, Factor: 2, Floor: time.Second}

// absentError means that the API server does not serve the kind of a controller, and that it may be absent.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

// reopening is the back-off between attempts to start the watches, if the host is degraded.
var reopening = backoff.Policy{Base: time.Second, Cap: 30 * time.Second, Factor: 2, Floor: time.Second}

// open starts the watches. If the host is degraded, it retries.
func (c *Controller) open(ctx context.Context, stop context.CancelCauseFunc) error {
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
		c.lifetime.start(ctx, stop)
		err := c.openAll(ctx)
		if c.lifetime.started(err); err == nil {
			return nil
		}
		c.close()
		policy := reopening
		_, mistake := errors.AsType[*source.OptionsError](err)
		switch _, absent := errors.AsType[*absentError](err); {
		case ctx.Err() != nil, mistake:
			return err
		case absent:
			policy = asking
			if attempt == 0 {
				c.log.InfoContext(ctx, "waits until its kind is served", "kind", c.declared.main.kind.String())
			}
		case !c.from.Degraded:
			return err
		default:
			c.log.ErrorContext(ctx, "cannot start, trying again", "error", err)
		}
		if backoff.Pause(ctx, policy.Delay(attempt, rand.Float64)) != nil {
			return err
		}
	}
}

// openAll opens each declared watch once. It returns the errors of all, so that an operator sees every missing kind at
// once.
func (c *Controller) openAll(ctx context.Context) error {
	c.intake.start(ctx)
	err := c.namespaces.open(c.declared.main)
	if c.declared.main.optional && meta.IsNoMatchError(err) {
		return &absentError{err}
	}
	errs := []error{err}
	c.absent = nil
	for _, w := range c.declared.related {
		err := c.openRelated(w)
		if w.optional && meta.IsNoMatchError(err) {
			c.absent = append(c.absent, w)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// openAbsent opens the watches of optional kinds when they are served.
func (c *Controller) openAbsent(ctx context.Context) {
	for attempt := 0; len(c.absent) > 0; attempt++ {
		if backoff.Pause(ctx, asking.Delay(attempt, rand.Float64)) != nil {
			return
		}
		c.absent = slices.DeleteFunc(c.absent, func(w *watch) bool {
			err := c.openRelated(w)
			switch {
			case err == nil:
				c.log.InfoContext(ctx, "an optional kind is served now", "watch", w.name)
			case ctx.Err() == nil && !meta.IsNoMatchError(err):
				c.log.WarnContext(ctx, "cannot watch an optional kind, trying again", "watch", w.name, "error", err)
			}
			return err == nil
		})
	}
}

// openRelated opens a watch of another kind.
func (c *Controller) openRelated(w *watch) (err error) {
	if c.slots != nil {
		w.everySlot, err = spansSlots(c.slots.Layout(), w, c.client.Mapper(), c.intake.primaryKind().namespaced)
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", w.name, err)
		}
	}
	return c.namespaces.open(w)
}

// close ends the watches and waits for the workers.
func (c *Controller) close() {
	c.scheduler.end()
	c.lifetime.stop()
	release := c.intake.close()
	c.follows.clear()
	c.workers.wait()
	release()
}

// fail ends a controller that can no longer work. run returns the error, unless the controller is already ending.
func (c *Controller) fail(err error) {
	if c.lifetime.fail(err) {
		c.log.Error("has failed permanently", "error", err)
	}
}

// lead runs the workers while this process leads, after all watches and the declared indexes of the host are synced. It
// returns nil when ctx has ended, and an error if the election fails.
func (c *Controller) lead(ctx context.Context) error {
	if !c.intake.awaitSync(ctx, c.set.syncWarning) || c.host.Cache().AwaitIndexes(ctx) != nil {
		return nil
	}
	for again := false; ctx.Err() == nil; again = true {
		term, done, err := c.elections.await(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return c.failure(err)
		}
		if again { // the previous leader may have left unfinished work, which no event reports
			c.reconcileAll()
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
	if c.set.leader != nil {
		c.log.InfoContext(ctx, "this process leads")
	}
	c.scheduler.begin(term, c.intake.objects())
	<-term.Done()
	c.scheduler.end()
	c.workers.wait() // end has stopped further starts
	c.object.halt()
	end(nil)
}

// reconcileAll makes all objects ready.
func (c *Controller) reconcileAll() {
	main := c.declared.main.name
	for r := range c.intake.objects().Snapshot().All() {
		why := Reason{Type: Leading, Source: main, Key: r.Key(), Version: r.Version()}
		c.scheduler.changed(r.Key(), why, low, c.intake.rank(r), nil)
	}
}

// reconcileSlots makes the objects of slots ready that have just opened. Earlier events of them are not in the queue.
func (c *Controller) reconcileSlots(slots shard.Set) {
	main := c.declared.main.name
	for r := range c.intake.objects().Snapshot().All() {
		if slots.Has(r.Namespace(), r.UID()) {
			now := factsOf(r)
			why := Reason{Type: Initial, Source: main, Key: r.Key(), Version: r.Version()}
			c.scheduler.changed(r.Key(), why, low, c.intake.rank(r), &now)
		}
	}
}

// onDeleted handles the deletion of an object.
func (c *Controller) onDeleted(k Key, why Reason) {
	c.scheduler.deleted(k, why)
	c.object.deleted(k)
	c.follows.removeAll(k)
}

// onLeft forgets an object whose slot is no longer held.
func (c *Controller) onLeft(k Key) {
	c.scheduler.left(k)
	c.follows.removeAll(k)
}
