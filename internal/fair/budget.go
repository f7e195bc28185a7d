package fair

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Price is a cost or a balance, in number and in bytes.
type Price struct{ Count, Bytes float64 }

func (p Price) plus(q Price) Price            { return Price{p.Count + q.Count, p.Bytes + q.Bytes} }
func (p Price) times(f float64) Price         { return Price{p.Count * f, p.Bytes * f} }
func (p Price) atMost(q Price) Price          { return Price{min(p.Count, q.Count), min(p.Bytes, q.Bytes)} }
func (p Price) positive() bool                { return p.Count > 0 && p.Bytes > 0 }
func (p Price) covers(q Price) bool           { return p.Count >= q.Count && p.Bytes >= q.Bytes }
func untilPositive(has, rate float64) float64 { return max(0, -has/rate) }

// Budget bounds the work of each group, such as a namespace, over time, by token buckets. A group with a positive
// balance may overdraw it. Its next work waits until the debt is repaid, so no work is too large to ever start. The
// concurrent bytes of a group are bounded likewise.
//
// The waiters of a group take turns by member, urgent ones first. No group waits for another one, with two exceptions.
// Groups with less than half of their maximum balance are throttled: all of them share one total rate, so that a user
// gains no capacity by using many groups. Large work is bounded over all groups, and groups take turns for it.
//
// Budget is safe for concurrent use and runs no callback under its lock.
type Budget struct {
	BudgetOptions

	mu        sync.Mutex
	accounts  map[string]*account
	open      float64 // bytes of large work in progress
	spent     float64 // by large work, as of spentAt
	spentAt   time.Time
	large     []*account // accounts that wait only for the end of large work, in order
	throttled int        // number of throttled accounts
	counted   time.Time  // when all accounts were last refilled, which updates throttled
	sweepAt   int
	requests  map[any]*Item[string, request] // waiting, or granted
	waits     int                            // number so far
}

// BudgetOptions configures a Budget. Rate and Most are required.
type BudgetOptions struct {
	// Rate is the income of a group per second, and Most its maximum balance.
	Rate, Most Price
	// Total is the rate per second of all throttled groups together. Default: no bound.
	Total Price
	// Abreast bounds the bytes in progress: those of a group for any work, and those of all large work for large
	// work. Work starts only below the bound. Default: no bound.
	Abreast float64
	// Large is the minimum size of large work in bytes. Default: all work is large.
	Large float64
	// Short is called occasionally for a group that has to wait. Default: none.
	Short func(group string)
}

// account is the balance and the waiters of one group.
type account struct {
	group          string
	left           Price
	open           float64   // bytes in progress
	at             time.Time // time of the last refill
	throttled      bool
	large          bool                   // in Budget.large
	urgent, normal Queue[string, request] // by member
	timer          *time.Timer            // nil without waiters
	notified       time.Time
}

// minSweep is the number of accounts above which idle ones are dropped. shortEvery is the minimum interval of Short for
// a group.
const (
	minSweep   = 1024
	shortEvery = time.Minute
	// checkEvery is the interval at which waiters are checked, because their share of Total changes, and at which
	// throttled accounts are counted.
	checkEvery = time.Second
)

// NewBudget returns an unused Budget.
func NewBudget(o BudgetOptions) *Budget {
	return &Budget{
		BudgetOptions: o, sweepAt: minSweep,
		accounts: make(map[string]*account), requests: make(map[any]*Item[string, request]),
	}
}

// Acquire spends cost and returns the spent price. That may be the price of an earlier call with the same key. If the
// caller has to wait, Acquire returns false and calls wake when it is its turn.
func (b *Budget) Acquire(who Party, key any, cost Price, urgent bool, wake func()) (Price, bool) {
	b.mu.Lock()
	r := b.requests[key]
	if r != nil && r.Value.granted {
		delete(b.requests, key)
		b.mu.Unlock()
		return r.Value.cost, true
	}
	a := b.account(who.Group)
	switch {
	case r == nil && a.urgent.Len() == 0 && (urgent || a.normal.Len() == 0) && b.may(a, cost):
		b.begin(a, cost)
		b.mu.Unlock()
		return cost, true
	case r == nil:
		r = &Item[string, request]{}
		b.requests[key] = r
	case r.Value.urgent || !urgent:
		b.mu.Unlock()
		return Price{}, false
	}
	r.Remove()
	r.Value = request{key: key, wake: wake, cost: cost, urgent: urgent}
	if urgent {
		a.urgent.Add(who.Member, r)
	} else {
		a.normal.Add(who.Member, r)
	}
	b.waits++
	notify := a.timer == nil && time.Since(a.notified) >= shortEvery
	if notify {
		a.notified = time.Now()
	}
	b.arm(a)
	b.mu.Unlock()
	if notify && b.Short != nil {
		b.Short(who.Group)
	}
	return Price{}, false
}

// may reports whether a group may start work.
func (b *Budget) may(a *account, cost Price) bool {
	return b.mayOf(a) && (b.Abreast == 0 || cost.Bytes < b.Large || b.mayLarge() && (len(b.large) == 0 || b.large[0] == a))
}

// mayLarge reports whether the bounds of all groups together permit large work: a balance like that of one
// group, and the rate of the throttled ones.
func (b *Budget) mayLarge() bool {
	if b.open >= b.Abreast {
		return false
	}
	if b.Total == (Price{}) {
		return true
	}
	now := time.Now()
	b.spent = max(0, b.spent-b.Total.Bytes*now.Sub(b.spentAt).Seconds())
	b.spentAt = now
	return b.spent < b.Most.Bytes
}

// mayOf reports whether a group may start work by its own share.
func (b *Budget) mayOf(a *account) bool {
	return a.left.positive() && (b.Abreast == 0 || a.open < b.Abreast)
}

func (b *Budget) begin(a *account, cost Price) {
	a.left, a.open = a.left.plus(cost.times(-1)), a.open+cost.Bytes
	if cost.Bytes >= b.Large {
		b.open, b.spent = b.open+cost.Bytes, b.spent+cost.Bytes
	}
	b.throttle(a)
}

// finish reverts the concurrency that begin counted.
func (b *Budget) finish(a *account, paid Price) {
	a.open -= paid.Bytes
	if paid.Bytes >= b.Large {
		b.open -= paid.Bytes
	}
}

// throttle updates whether a group is throttled.
func (b *Budget) throttle(a *account) {
	if throttled := !a.left.covers(b.Most.times(0.5)); throttled != a.throttled {
		if a.throttled = throttled; throttled {
			b.throttled++
		} else {
			b.throttled--
		}
	}
}

// rateOf returns the income of a group per second.
func (b *Budget) rateOf(a *account) Price {
	if !a.throttled || b.Total == (Price{}) {
		return b.Rate
	}
	return b.Rate.atMost(b.Total.times(1 / float64(b.throttled)))
}

// Take spends cost without waiting.
func (b *Budget) Take(group string, cost Price) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(b.account(group), cost)
}

// End ends work for which paid was spent, and corrects the balance to the actual cost.
func (b *Budget) End(group string, paid, cost Price) {
	b.change(group, func(a *account) {
		b.finish(a, paid)
		a.left = a.left.plus(paid).plus(cost.times(-1)).atMost(b.Most)
	})
}

// Charge spends cost for work that is already done. A negative cost is a refund.
func (b *Budget) Charge(group string, cost Price) {
	b.change(group, func(a *account) { a.left = a.left.plus(cost.times(-1)).atMost(b.Most) })
}

func (b *Budget) change(group string, change func(*account)) {
	b.mu.Lock()
	a := b.account(group)
	change(a)
	b.throttle(a)
	wakes := append(b.serve(a), b.serveLarge()...)
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Refund returns the price of work that was not done.
func (b *Budget) Refund(group string, paid Price) { b.Charge(group, paid.times(-1)) }

// Withdraw removes a waiter and refunds a grant that it has not used.
func (b *Budget) Withdraw(who Party, key any) {
	b.change(who.Group, func(a *account) {
		r := b.requests[key]
		if r == nil {
			return
		}
		delete(b.requests, key)
		if r.Remove(); r.Value.granted {
			b.finish(a, r.Value.cost)
			a.left = a.left.plus(r.Value.cost).atMost(b.Most)
		}
	})
}

// account returns the refilled account of a group.
func (b *Budget) account(group string) *account {
	now := time.Now()
	if b.throttled > 1 && now.Sub(b.counted) >= checkEvery {
		b.counted = now
		for _, a := range b.accounts {
			b.refill(a, now)
		}
	}
	a := b.accounts[group]
	if a == nil {
		if len(b.accounts) >= b.sweepAt {
			maps.DeleteFunc(b.accounts, func(_ string, a *account) bool {
				b.refill(a, now)
				return a.timer == nil && !a.large && a.open == 0 && a.left.covers(b.Most)
			})
			b.sweepAt = max(minSweep, 2*len(b.accounts))
		}
		a = &account{group: group, left: b.Most, at: now}
		b.accounts[group] = a
	}
	b.refill(a, now)
	return a
}

func (b *Budget) refill(a *account, now time.Time) {
	a.left = a.left.plus(b.rateOf(a).times(now.Sub(a.at).Seconds())).atMost(b.Most)
	a.at = now
	b.throttle(a)
}

// serve grants the waiters whose turn it is.
func (b *Budget) serve(a *account) (wakes []func()) {
	for {
		queue := a.queue()
		if first := queue.First(); first == nil || !b.may(a, first.Value.cost) {
			break
		}
		r := &queue.Next(nil).Value
		if a.large && r.cost.Bytes >= b.Large { // a was the first in b.large and has had its turn
			b.large, a.large = b.large[1:], false
		}
		b.begin(a, r.cost)
		r.granted = true
		wakes = append(wakes, r.wake)
	}
	b.arm(a)
	return wakes
}

// queue returns the queue to serve next.
func (a *account) queue() *Queue[string, request] {
	if a.urgent.Len() > 0 {
		return &a.urgent
	}
	return &a.normal
}

// serveLarge grants large work of all groups in turn.
func (b *Budget) serveLarge() (wakes []func()) {
	for len(b.large) > 0 && b.mayLarge() {
		a := b.large[0]
		served := b.serve(a)
		if len(served) == 0 { // it waits for another bound, or has no waiters
			b.large, a.large = b.large[1:], false
		}
		wakes = append(wakes, served...)
	}
	return wakes
}

// arm sets the timer for the next check of the waiters, or stops it if there are none.
func (b *Budget) arm(a *account) {
	first := a.queue().First()
	if first == nil {
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		return
	}
	if !a.large && b.Abreast > 0 && first.Value.cost.Bytes >= b.Large && b.mayOf(a) {
		b.large, a.large = append(b.large, a), true
	}
	wait := checkEvery
	if !a.left.positive() { // otherwise the end of work in progress serves it
		rate := b.rateOf(a)
		seconds := max(untilPositive(a.left.Count, rate.Count), untilPositive(a.left.Bytes, rate.Bytes))
		wait = min(wait, time.Duration(min(seconds, 1)*float64(time.Second))+time.Millisecond)
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() { b.Charge(a.group, Price{}) })
		return
	}
	a.timer.Reset(wait)
}

// Wait is Acquire, but blocks until the grant. The caller must call End afterwards. Wait fails with the cause of ctx if
// ctx ends before.
func (b *Budget) Wait(ctx context.Context, who Party, cost Price, urgent bool) error {
	turn := make(chan struct{}, 1)
	if _, ok := b.Acquire(who, turn, cost, urgent, func() { turn <- struct{}{} }); ok {
		return nil
	}
	select {
	case <-turn:
		_, _ = b.Acquire(who, turn, cost, urgent, nil) // granted already
		return nil
	case <-ctx.Done():
		b.Withdraw(who, turn)
		return context.Cause(ctx)
	}
}

// Usage returns the current waiters.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := Usage{Waits: b.waits}
	for _, a := range b.accounts {
		u.Waiting += a.urgent.Len() + a.normal.Len()
		if a.timer != nil {
			u.Groups++
		}
	}
	return u
}
