package executor

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/webhook"
)

// refusal is a call that has to wait: for its turn, or until its Webhook is compiled.
type refusal struct {
	call  string    // its idempotency key; empty: its endpoint was not asked
	until time.Time // ask again then; zero: now
	share string    // of what its namespace has used up its share; empty: that is not why
	since time.Time // shareCompile: it is being compiled
}

// What namespaces have shares of.
const (
	sharePlaces = "calls under way"
	shareCalls  = "calls per second"
	shareWrites = "writes to the API server"
	// shareCompile is the share of those that wait for a Webhook to be compiled.
	shareCompile = "processor time, for its webhooks to be compiled"
	// shareMemory is the share of those that wait for others of which the Webhooks take too much memory together.
	shareMemory = "memory, for the webhooks of its calls"
)

// askForMemory is when a call asks again for which there is no memory.
const askForMemory = time.Second

// compileSoon is how long an operation waits for its Webhook to be compiled before it says so.
const compileSoon = time.Second

// compiling tells whether an operation with nothing under way waits for a Webhook that will soon be compiled.
func (r *run) compiling(now time.Time) bool {
	if len(r.flying) > 0 {
		return false
	}
	for _, refusal := range r.refused {
		if refusal.share == shareCompile && now.Sub(refusal.since) < compileSoon {
			return true
		}
	}
	return false
}

// share returns what the operation waits for its namespace's share of; empty: for nothing.
func (r *run) share() string {
	for _, refusal := range r.refused {
		if refusal.share != "" {
			return refusal.share
		}
	}
	if r.short {
		return shareWrites
	}
	return ""
}

func (r *run) refuse(t target, why refusal) {
	if r.refused == nil {
		r.refused = make(map[target]refusal)
	}
	r.refused[t] = why
}

// askAgain makes the calls that wait for their turn due.
func (r *run) askAgain() {
	for t, refusal := range r.refused {
		refusal.until = time.Time{}
		r.refused[t] = refusal
	}
}

// party is who shares with others what the run uses.
func (r *run) party() party { return party{r.key.Namespace, r.tenant} }

// admit asks for the call's share of the calls that its namespace may make, for a place among all calls under way, and
// for a permit of the endpoint. It returns nil if the call has to wait; then the run is woken.
func (e *Executor) admit(r *run, t target, hook *webhook.Compiled, now time.Time) *webhook.Permit {
	key, call := slotKey{r, t}, callID(r.op, t)
	if !e.hooks.pins.take(hook) {
		r.refuse(t, refusal{until: now.Add(askForMemory), share: shareMemory})
		return nil
	}
	cost, ok := e.outside.acquire(r.party(), key, price{count: 1}, false, r.news.Set)
	if !ok {
		e.hooks.pins.release(hook)
		r.refuse(t, refusal{until: farFuture, share: shareCalls})
		return nil
	}
	if !e.slots.acquire(r.party(), key, r.news.Set) {
		e.hooks.pins.release(hook)
		e.outside.charge(r.key.Namespace, cost.times(-1))
		r.refuse(t, refusal{call: call, until: farFuture, share: sharePlaces})
		return nil
	}
	permit, wait := e.webhooks.Acquire(hook, call, r.news.Set)
	if permit == nil {
		e.home(r, hook)
		e.outside.charge(r.key.Namespace, cost.times(-1))
		r.refuse(t, refusal{call: call, until: now.Add(wait.For)})
		return nil
	}
	delete(r.refused, t)
	return permit
}

// home gives back what a call had while it was under way.
func (e *Executor) home(r *run, hook *webhook.Compiled) {
	e.hooks.pins.release(hook)
	e.slots.release(r.party())
}

// withdraw gives up the places that the run waits for, those of the calls that unwanted says.
func (e *Executor) withdraw(r *run, unwanted func(target) bool) {
	for t, refusal := range r.refused {
		if !unwanted(t) {
			continue
		}
		key := slotKey{r, t}
		e.outside.withdraw(r.party(), key)
		if e.slots.withdraw(r.party(), key) {
			e.slots.release(r.party())
		}
		if refusal.call != "" {
			e.webhooks.WithdrawFrom(r.key.Namespace, t.id, refusal.call)
		}
		delete(r.refused, t)
	}
}

// unwanted tells of the calls of an operation that are not to be made, or not now: a place that is kept for one is lost
// to all others.
func unwanted(op *v1alpha1.Operation, find lookup) func(target) bool {
	decided := meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.ConditionError)
	return func(t target) bool {
		_, exists := find(t.id)
		en := entry(&op.Status, t)
		return !exists || decided && t.purpose == webhook.Main || en != nil && en.State.Terminal()
	}
}

func allOf(target) bool { return true }
