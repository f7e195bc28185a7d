package executor

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// askForMemory is the delay until a call asks for memory again.
const askForMemory = time.Second

// callKey identifies a call that waits for its share.
type callKey struct {
	run    *run
	target record.Target
}

// admit takes the namespace's share of calls per second, a call slot and a permit of the endpoint, and pins the
// Webhook in memory. It returns nil if the call has to wait; then the run is woken.
func (e *Executor) admit(r *run, t record.Target, hook *webhook.Compiled, now time.Time) *webhook.Permit {
	key, call := callKey{r, t}, course.CallID(r.op, t)
	if !e.hooks.Pin(hook) {
		r.refuse(t, refusal{until: now.Add(askForMemory), share: shareMemory, since: now})
		return nil
	}
	cost, ok := e.outside.Acquire(r.party(), key, fair.Price{Count: 1}, false, r.news.Set)
	if !ok {
		e.hooks.Unpin(hook)
		r.refuse(t, refusal{until: course.FarFuture, share: shareCalls, since: now})
		return nil
	}
	if !e.slots.Acquire(r.party(), key, r.news.Set) {
		e.hooks.Unpin(hook)
		e.outside.Refund(r.key.Namespace, cost)
		r.refuse(t, refusal{call: call, until: course.FarFuture, share: sharePlaces, since: now})
		return nil
	}
	permit, wait := e.webhooks.Acquire(hook, call, r.news.Set)
	if permit == nil {
		e.home(r, hook)
		e.outside.Refund(r.key.Namespace, cost)
		r.refuse(t, refusal{call: call, until: now.Add(wait.For), reason: wait.Reason, since: now})
		return nil
	}
	delete(r.refused, t)
	return permit
}

// home releases what a call has held while it was under way, except its permit.
func (e *Executor) home(r *run, hook *webhook.Compiled) {
	e.hooks.Unpin(hook)
	e.slots.Release(r.party())
}

// withdraw removes the calls that unwanted selects from the queues in which the run waits.
func (e *Executor) withdraw(r *run, unwanted func(record.Target) bool) {
	for t, refusal := range r.refused {
		if !unwanted(t) {
			continue
		}
		key := callKey{r, t}
		e.outside.Withdraw(r.party(), key)
		if e.slots.Withdraw(r.party(), key) {
			e.slots.Release(r.party())
		}
		if refusal.call != "" {
			e.webhooks.WithdrawFrom(r.key.Namespace, t.ID, refusal.call)
		}
		delete(r.refused, t)
	}
}

// unwanted returns a function that selects the calls of an operation that are not made, or not made now. A slot that
// is kept for such a call would be lost to all others.
func unwanted(op *v1alpha1.Operation, find course.Lookup) func(record.Target) bool {
	decided := meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError)
	return func(t record.Target) bool {
		_, exists := find(t.ID)
		en := record.Entry(&op.Status, t)
		return !exists || decided && t.Purpose == record.Main || en != nil && en.State.Terminal()
	}
}

func allOf(record.Target) bool { return true }
