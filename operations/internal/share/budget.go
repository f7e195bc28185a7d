package share

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

// Budget bounds the work of each namespace over time, by token buckets. A namespace with a positive balance may
// overdraw it. Its next work waits until the debt is repaid, so no work is too large to ever start. The concurrent
// bytes of a namespace are bounded likewise.
//
// The waiters of a namespace take turns by tenant, urgent ones first. No namespace waits for another one, with two
// exceptions. Namespaces with less than half of their maximum balance are tired: all of them share one total rate, so
// that a user gains no capacity by using many namespaces. Large work is bounded over all namespaces, and namespaces
// take turns for it.
//
// Budget is safe for concurrent use and runs no callback under its lock.
type Budget struct {
	BudgetOptions

	mu       sync.Mutex
	accounts map[string]*account
	open     float64 // bytes of large work in progress
	spent    float64 // by large work, as of spentAt
	spentAt  time.Time
	crowd    []*account // accounts that wait only for the end of large work, in order
	tired    int        // number of tired accounts
	counted  time.Time  // when all accounts were last refilled, which updates tired
	sweepAt  int
	waiting  map[any]*waiter
	granted  map[any]Price
	waits    int // number so far
}

// BudgetOptions configures a Budget. Rate and Most are required.
type BudgetOptions struct {
	// Rate is the income of a namespace per second, and Most its maximum balance.
	Rate, Most Price
	// Total is the rate per second of all tired namespaces together. Default: no bound.
	Total Price
	// Abreast bounds the bytes in progress: those of a namespace for any work, and those of all large work for large
	// work. Work starts only below the bound. Default: no bound.
	Abreast float64
	// Large is the minimum size of large work in bytes. Default: all work is large.
	Large float64
	// Short is called occasionally for a namespace that has to wait. Default: none.
	Short func(namespace string)
}

// account is the balance and the waiters of one namespace.
type account struct {
	namespace     string
	left          Price
	open          float64   // bytes in progress
	at            time.Time // time of the last refill
	tired, crowds bool      // crowds: in Budget.crowd
	urgent, queue rota
	timer         *time.Timer // nil without waiters
	told          time.Time
}

// minSweep is the number of accounts above which idle ones are dropped. shortEvery is the minimum interval of Short for
// a namespace.
const (
	minSweep   = 1024
	shortEvery = time.Minute
	// lookAtShare is the interval at which waiters are checked, because their share of Total changes, and at which
	// tired accounts are counted.
	lookAtShare = time.Second
)

// NewBudget returns an unused Budget.
func NewBudget(o BudgetOptions) *Budget {
	return &Budget{
		BudgetOptions: o, sweepAt: minSweep,
		accounts: make(map[string]*account), waiting: make(map[any]*waiter), granted: make(map[any]Price),
	}
}

// Acquire spends cost and returns the spent price. That may be the price of an earlier call with the same key. If the
// caller has to wait, Acquire returns false and calls wake when it is its turn.
func (b *Budget) Acquire(who Party, key any, cost Price, urgent bool, wake func()) (Price, bool) {
	b.mu.Lock()
	if paid, ok := b.granted[key]; ok {
		delete(b.granted, key)
		b.mu.Unlock()
		return paid, true
	}
	a := b.account(who.Namespace)
	w := b.waiting[key]
	if w != nil && (!urgent || w.lane.rota == &a.urgent) {
		b.mu.Unlock()
		return Price{}, false
	}
	queue := &a.queue
	if urgent {
		queue = &a.urgent
	}
	if w != nil {
		w.lane.rota.remove(w)
		delete(b.waiting, key)
	} else if a.urgent.empty() && (urgent || a.queue.empty()) && b.may(a, cost) {
		b.begin(a, cost)
		b.mu.Unlock()
		return cost, true
	}
	w = &waiter{key: key, wake: wake, cost: cost}
	b.waiting[key] = w
	queue.add(who.Tenant, w)
	b.waits++
	tell := a.timer == nil && time.Since(a.told) >= shortEvery
	if tell {
		a.told = time.Now()
	}
	b.arm(a)
	b.mu.Unlock()
	if tell && b.Short != nil {
		b.Short(who.Namespace)
	}
	return Price{}, false
}

// may reports whether a namespace may start work.
func (b *Budget) may(a *account, cost Price) bool {
	return b.mayOf(a) && (b.Abreast == 0 || cost.Bytes < b.Large || b.mayLarge() && (len(b.crowd) == 0 || b.crowd[0] == a))
}

// mayLarge reports whether the bounds of all namespaces together permit large work: a balance like that of one
// namespace, and the rate of the tired ones.
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

// mayOf reports whether a namespace may start work by its own share.
func (b *Budget) mayOf(a *account) bool {
	return a.left.positive() && (b.Abreast == 0 || a.open < b.Abreast)
}

func (b *Budget) begin(a *account, cost Price) {
	a.left, a.open = a.left.plus(cost.times(-1)), a.open+cost.Bytes
	if cost.Bytes >= b.Large {
		b.open, b.spent = b.open+cost.Bytes, b.spent+cost.Bytes
	}
	b.note(a)
}

// over reverts the concurrency that begin counted.
func (b *Budget) over(a *account, paid Price) {
	a.open -= paid.Bytes
	if paid.Bytes >= b.Large {
		b.open -= paid.Bytes
	}
}

// note updates whether a namespace is tired.
func (b *Budget) note(a *account) {
	if tired := !a.left.covers(b.Most.times(0.5)); tired != a.tired {
		if a.tired = tired; tired {
			b.tired++
		} else {
			b.tired--
		}
	}
}

// rateOf returns the income of a namespace per second.
func (b *Budget) rateOf(a *account) Price {
	if !a.tired || b.Total == (Price{}) {
		return b.Rate
	}
	return b.Rate.atMost(b.Total.times(1 / float64(b.tired)))
}

// Take spends cost without waiting.
func (b *Budget) Take(namespace string, cost Price) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(b.account(namespace), cost)
}

// End ends work for which paid was spent, and corrects the balance to the actual cost.
func (b *Budget) End(namespace string, paid, cost Price) {
	b.change(namespace, func(a *account) {
		b.over(a, paid)
		a.left = a.left.plus(paid).plus(cost.times(-1)).atMost(b.Most)
	})
}

// Charge spends cost for work that is already done. A negative cost is a refund.
func (b *Budget) Charge(namespace string, cost Price) {
	b.change(namespace, func(a *account) { a.left = a.left.plus(cost.times(-1)).atMost(b.Most) })
}

func (b *Budget) change(namespace string, change func(*account)) {
	b.mu.Lock()
	a := b.account(namespace)
	change(a)
	b.note(a)
	wakes := append(b.serve(a), b.serveCrowd()...)
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Refund returns the price of work that was not done.
func (b *Budget) Refund(namespace string, paid Price) { b.Charge(namespace, paid.times(-1)) }

// Withdraw removes a waiter and refunds a grant that it has not used.
func (b *Budget) Withdraw(who Party, key any) {
	b.change(who.Namespace, func(a *account) {
		if paid, ok := b.granted[key]; ok {
			delete(b.granted, key)
			b.over(a, paid)
			a.left = a.left.plus(paid).atMost(b.Most)
		}
		if w := b.waiting[key]; w != nil {
			delete(b.waiting, key)
			w.lane.rota.remove(w)
		}
	})
}

// account returns the refilled account of a namespace.
func (b *Budget) account(namespace string) *account {
	now := time.Now()
	if b.tired > 1 && now.Sub(b.counted) >= lookAtShare {
		b.counted = now
		for _, a := range b.accounts {
			b.refill(a, now)
		}
	}
	a := b.accounts[namespace]
	if a == nil {
		if len(b.accounts) >= b.sweepAt {
			maps.DeleteFunc(b.accounts, func(_ string, a *account) bool {
				b.refill(a, now)
				return a.timer == nil && !a.crowds && a.open == 0 && a.left.covers(b.Most)
			})
			b.sweepAt = max(minSweep, 2*len(b.accounts))
		}
		a = &account{namespace: namespace, left: b.Most, at: now}
		b.accounts[namespace] = a
	}
	b.refill(a, now)
	return a
}

func (b *Budget) refill(a *account, now time.Time) {
	a.left = a.left.plus(b.rateOf(a).times(now.Sub(a.at).Seconds())).atMost(b.Most)
	a.at = now
	b.note(a)
}

// serve grants the waiters whose turn it is.
func (b *Budget) serve(a *account) (wakes []func()) {
	for {
		queue := a.turn()
		w := queue.first()
		if w == nil || !b.may(a, w.cost) {
			break
		}
		queue.next(anybody)
		if a.crowds && w.cost.Bytes >= b.Large { // a was the first in crowd and has had its turn
			b.crowd, a.crowds = b.crowd[1:], false
		}
		b.begin(a, w.cost)
		delete(b.waiting, w.key)
		b.granted[w.key] = w.cost
		wakes = append(wakes, w.wake)
	}
	b.arm(a)
	return wakes
}

// turn returns the queue to serve next.
func (a *account) turn() *rota {
	if !a.urgent.empty() {
		return &a.urgent
	}
	return &a.queue
}

// serveCrowd grants large work of all namespaces in turn.
func (b *Budget) serveCrowd() (wakes []func()) {
	for len(b.crowd) > 0 && b.mayLarge() {
		a := b.crowd[0]
		served := b.serve(a)
		if len(served) == 0 { // it waits for another bound, or has no waiters
			b.crowd, a.crowds = b.crowd[1:], false
		}
		wakes = append(wakes, served...)
	}
	return wakes
}

func anybody(string) bool { return true }

// arm sets the timer for the next check of the waiters, or stops it if there are none.
func (b *Budget) arm(a *account) {
	if a.urgent.empty() && a.queue.empty() {
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		return
	}
	if w := a.turn().first(); !a.crowds && b.Abreast > 0 && w.cost.Bytes >= b.Large && b.mayOf(a) {
		b.crowd, a.crowds = append(b.crowd, a), true
	}
	wait := lookAtShare
	if !a.left.positive() { // otherwise the end of work in progress serves it
		rate := b.rateOf(a)
		seconds := max(untilPositive(a.left.Count, rate.Count), untilPositive(a.left.Bytes, rate.Bytes))
		wait = min(wait, time.Duration(min(seconds, 1)*float64(time.Second))+time.Millisecond)
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() { b.Charge(a.namespace, Price{}) })
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
	u := Usage{Waiting: len(b.waiting), Waits: b.waits}
	for _, a := range b.accounts {
		if a.timer != nil {
			u.Namespaces++
		}
	}
	return u
}
