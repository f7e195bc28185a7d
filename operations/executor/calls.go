package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// calls makes the calls of Webhooks. A call takes a share of its namespace's calls per second, a call slot, a permit of
// the endpoint, and the memory of its Webhook, before it starts. calls has no lock besides those of its parts, and is
// safe for concurrent use.
type calls struct {
	own       *ownership
	hooks     *compiled.Cache
	endpoints *webhook.Client
	rate      *fair.Budget // calls per second
	slots     *fair.Slots  // calls under way
	holders   *holders
	tried     *tried
	attempts  *attempts
	// deliver hands a result to the run for which start was called.
	deliver  func(r *run, l returnedCall)
	now      func() time.Time
	underWay sync.WaitGroup
}

var errDeadline = errors.New("the deadline has passed")

// askForMemory is the delay until a call asks for memory again.
const askForMemory = time.Second

// queued identifies a call that waits for its share.
type queued struct {
	wake   *news // of the run
	target record.Target
}

// admit takes the shares for a call of an operation. If the call has to wait, it returns a nil flight and the reason;
// then the run is woken. The caller must end a flight by start or release.
func (c *calls) admit(
	operation store.Key, p fair.Party, q queued, call string, hook *webhook.Compiled, now time.Time,
) (*flight, refusal) {
	if !c.hooks.Pin(hook) {
		return nil, refusal{until: now.Add(askForMemory), share: shareMemory, since: now}
	}
	wake, key := q.wake.Set, any(q)
	cost, ok := c.rate.Acquire(p, key, fair.Price{Count: 1}, false, wake)
	if !ok {
		c.hooks.Unpin(hook)
		return nil, refusal{until: course.FarFuture, share: shareCalls, since: now}
	}
	if !c.slots.Acquire(p, key, wake) {
		c.hooks.Unpin(hook)
		c.rate.Refund(p.Group, cost)
		return nil, refusal{call: call, until: course.FarFuture, share: sharePlaces, since: now}
	}
	permit, wait := c.endpoints.Acquire(hook, call, wake)
	if permit == nil {
		c.returnShares(p, hook)
		c.rate.Refund(p.Group, cost)
		return nil, refusal{call: call, until: now.Add(wait.For), reason: wait.Reason, since: now}
	}
	f := &flight{target: q.target, hook: hook, permit: permit}
	c.holders.enter(f, operation, now)
	return f, refusal{}
}

// returnShares returns what a call has held while it was under way, except its permit.
func (c *calls) returnShares(p fair.Party, hook *webhook.Compiled) {
	c.hooks.Unpin(hook)
	c.slots.Release(p)
}

// release returns the shares of a flight whose call is not made, after its permit was released.
func (c *calls) release(operation store.Key, p fair.Party, f *flight) {
	c.holders.leave(f, operation.Namespace)
	c.returnShares(p, f.hook)
}

// withdraw removes a refused call from the queues in which it waits. call is its idempotency key; empty: the endpoint
// was not asked.
func (c *calls) withdraw(p fair.Party, q queued, call string) {
	c.rate.Withdraw(p, q)
	if c.slots.Withdraw(p, q) {
		c.slots.Release(p)
	}
	if call != "" {
		c.endpoints.WithdrawFrom(p.Group, q.target.ID, call)
	}
}

// start makes the call of a flight, until deadline at the latest. It polls pollURL instead if that is not empty. It
// delivers the result to the run r, and wakes r.
func (c *calls) start(
	ctx context.Context, r *run, f *flight, of webhook.Call, pollURL string, deadline time.Time,
) {
	of.After = c.tried.last(of.ID)
	f.since = c.now()
	ctx, f.cancel = context.WithCancelCause(ctx)
	ctx, stop := context.WithDeadlineCause(ctx, deadline, errDeadline)
	c.own.add(r.key.Namespace) // the run is counted, so the slot is here
	c.underWay.Go(func() {
		defer c.own.leave(r.key.Namespace)
		defer stop()
		l := returnedCall{flight: f}
		if pollURL != "" {
			l.result = f.permit.Poll(ctx, of, pollURL)
		} else {
			l.result = f.permit.Call(ctx, of)
		}
		c.holders.leave(f, r.key.Namespace)
		c.tried.record(of.ID, l.result)
		c.attempts.record(r.key, f, pollURL != "", c.now(), l.result)
		c.deliver(r, l)
		c.returnShares(r.party(), f.hook) // last: the slot may go to a call that this result makes unwanted
		r.news.Set()
	})
}
