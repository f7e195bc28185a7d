package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/leasing"
)

// jitter bounds the random part of the wait between two attempts to take the lease, as a multiple of Options.Retry.
const jitter = 1.2

// Run takes part in the election until ctx ends. It then waits for the work of its term, at most Options.Drain, and
// releases the lease. It may be called once.
func (l *Lease) Run(ctx context.Context) error {
	defer close(l.ends)
	defer l.claim.Client.Close()
	l.slot.From(ctx)
	l.leader.Store(&leader{})
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	var stopping sync.WaitGroup
	defer stopping.Wait()
	stopping.Go(func() {
		<-ctx.Done()
		l.endTerm(context.Cause(ctx))
		l.drain()
		stop()
	})
	for l.take(ctx, election) {
		cause := ErrLost
		if err := l.renewal.Run(election, l.opt.Retry, l.renew(ctx)); err != nil {
			cause = fmt.Errorf("%w: %w", ErrLost, err)
		}
		l.renewal.End()
		l.endTerm(cause)
		l.release(ctx)
	}
	return nil
}

// take waits until this process holds the lease. It returns false when the election ends. The term begins in run.
func (l *Lease) take(run, election context.Context) bool {
	for election.Err() == nil {
		begun, err := l.claim.Take(election)
		l.observe(run, err)
		if err == nil {
			l.renewed(run, begun)
			return true
		}
		wait := l.opt.Retry + time.Duration(rand.Float64()*jitter*float64(l.opt.Retry))
		_ = backoff.Pause(election, wait) // the loop checks the context
	}
	return false
}

// renew returns a function that renews the lease once. It returns the wait until the next renewal, or an error if the
// lease is lost.
func (l *Lease) renew(run context.Context) func(context.Context, leasing.Stamp) (time.Duration, error) {
	return func(ctx context.Context, begun leasing.Stamp) (time.Duration, error) {
		defer context.AfterFunc(ctx, func() { // even if the request does not return
			if !l.renewal.Fresh() {
				l.endTerm(ErrLost)
			}
		})()
		err := l.claim.Renew(ctx, begun)
		l.observe(run, err)
		switch {
		case err == nil:
			l.renewed(run, begun)
			return l.opt.Retry, nil
		case errors.Is(err, leasing.ErrHeld):
			return 0, err
		case errors.Is(err, leasing.ErrConflict):
			return 0, nil
		}
		return max(l.opt.Retry-l.renewal.Clock.Stamp().Sub(begun.Time), 0), nil
	}
}

// renewed begins a term, unless there is one or the renewal has expired. It expires if the process was paused; another
// process may then hold the lease.
func (l *Lease) renewed(run context.Context, begun leasing.Stamp) {
	l.renewal.Renewed(begun)
	if l.renewal.Fresh() {
		l.beginTerm(run)
	}
}

// observe records the result of a request about the lease, and logs a change of the leader.
func (l *Lease) observe(ctx context.Context, err error) {
	switch {
	case errors.Is(err, context.Canceled): // the election has ended
		return
	case errors.Is(err, leasing.ErrHeld) || errors.Is(err, leasing.ErrConflict):
		err = nil
	}
	before, after := l.leader.Load(), &leader{err: err}
	if err == nil {
		after.lease, after.unrenewed = l.claim.Last(), l.claim.Unrenewed()
	} else if after.lease = before.lease; before.err == nil {
		l.log.WarnContext(ctx, "cannot take part in the election now", "error", err)
	}
	l.leader.Store(after)
	if holder := leasing.Holder(after.lease); holder != "" && holder != leasing.Holder(before.lease) {
		l.log.InfoContext(ctx, "leader", "leader", holder, "self", holder == l.opt.Identity)
	}
}

// release makes the lease free if this process has it and all work of its terms has ended. Otherwise it expires.
func (l *Lease) release(ctx context.Context) {
	l.mu.Lock()
	busy := l.busy > 0
	l.mu.Unlock()
	if busy {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opt.Renew)
	defer cancel()
	err := leasing.ErrConflict
	for errors.Is(err, leasing.ErrConflict) {
		var held bool
		if held, err = l.claim.Holds(ctx); held {
			err = l.claim.Release(ctx)
		}
	}
	l.observe(ctx, err)
	if err != nil {
		l.log.WarnContext(ctx, "the lease is left to expire", "error", err)
	}
}
