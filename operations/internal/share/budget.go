package share

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Price is what something costs, or what somebody has.
type Price struct{ Count, Bytes float64 }

func (p Price) plus(q Price) Price            { return Price{p.Count + q.Count, p.Bytes + q.Bytes} }
func (p Price) times(f float64) Price         { return Price{p.Count * f, p.Bytes * f} }
func (p Price) atMost(q Price) Price          { return Price{min(p.Count, q.Count), min(p.Bytes, q.Bytes)} }
func (p Price) positive() bool                { return p.Count > 0 && p.Bytes > 0 }
func (p Price) covers(q Price) bool           { return p.Count >= q.Count && p.Bytes >= q.Bytes }
func untilPositive(has, rate float64) float64 { return max(0, -has/rate) }

// Budget bounds what each namespace has done over time: so much per second, and so much at once after a time of rest
// (token buckets). Who has anything left may spend more than that, and others of the namespace wait until it is paid
// back; so the largest costs what it costs, and none is too large. What is under way at a time is bounded likewise.
// Those of a namespace that wait take turns by tenant, those that are urgent first. No namespace waits for another
// one's. But those that have less than half of what a rest brings, tired ones, share what all of them together may have
// per second, so that nobody gets more by having many namespaces; who uses little notices nothing of that. Large ones
// are bounded over all namespaces, too, and go by turns. It is safe for concurrent use and calls nobody under its lock.
type Budget struct {
	BudgetOptions

	mu       sync.Mutex
	accounts map[string]*account
	open     float64 // bytes of large ones under way
	spent    float64 // for large ones, and not paid back at spentAt
	spentAt  time.Time
	crowd    []*account // of those that wait for the end of large ones only, the next one first
	tired    int        // of the accounts
	counted  time.Time  // when all of them were last refilled, so that tired is right
	sweepAt  int
	waiting  map[any]*waiter
	granted  map[any]Price
	waits    int // so far
}

// BudgetOptions configure a Budget. Rate and Most are required.
type BudgetOptions struct {
	// Rate is what a namespace may spend per second, and Most what it may spend at once after a rest.
	Rate, Most Price
	// Total is what all tired namespaces together may spend per second. Default: there is no bound.
	Total Price
	// Abreast are the bytes under way with which a namespace may begin no more, and with which no large one may begin of
	// those that are under way of all namespaces. Default: there is no bound.
	Abreast float64
	// Large is what one has to have of bytes to be large. Default: all are.
	Large float64
	// Short is told, now and then, of a namespace that has to wait. Default: nobody is.
	Short func(namespace string)
}

// account is what one namespace has left, and who waits for it.
type account struct {
	namespace     string
	left          Price
	open          float64   // bytes under way
	at            time.Time // of left
	tired, crowds bool      // the latter: it is in the crowd
	urgent, queue rota
	timer         *time.Timer // nil while nobody waits
	told          time.Time
}

// accounts of namespaces that have not spent anything lately are forgotten when there are so many; shortEvery is how
// often short is told of the same one.
const (
	minSweep   = 1024
	shortEvery = time.Minute
	// lookAtShare is how often those that wait are looked at, since what they share with others changes, and how often the
	// tired are counted.
	lookAtShare = time.Second
)

// NewBudget returns a Budget of which nothing has been used.
func NewBudget(o BudgetOptions) *Budget {
	return &Budget{
		BudgetOptions: o, sweepAt: minSweep,
		accounts: make(map[string]*account), waiting: make(map[any]*waiter), granted: make(map[any]Price),
	}
}

// Acquire spends what something costs and returns what was spent, which may be what an earlier call of the same key
// asked for. If the namespace has nothing left it returns false, and the caller is woken when it is its turn.
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

// may tells whether a namespace may begin something.
func (b *Budget) may(a *account, cost Price) bool {
	return b.mayOf(a) && (b.Abreast == 0 || cost.Bytes < b.Large || b.mayLarge() && (len(b.crowd) == 0 || b.crowd[0] == a))
}

// mayLarge tells whether a large one may begin as far as all of them together go: they have a rest, and a rate, as one
// namespace has the former and the tired have the latter.
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

// mayOf tells whether a namespace may begin something as far as its own share goes.
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

// over is begin's end.
func (b *Budget) over(a *account, paid Price) {
	a.open -= paid.Bytes
	if paid.Bytes >= b.Large {
		b.open -= paid.Bytes
	}
}

// note finds out whether a namespace is tired.
func (b *Budget) note(a *account) {
	if tired := !a.left.covers(b.Most.times(0.5)); tired != a.tired {
		if a.tired = tired; tired {
			b.tired++
		} else {
			b.tired--
		}
	}
}

// rateOf is what a namespace gets per second.
func (b *Budget) rateOf(a *account) Price {
	if !a.tired || b.Total == (Price{}) {
		return b.Rate
	}
	return b.Rate.atMost(b.Total.times(1 / float64(b.tired)))
}

// Take spends without asking.
func (b *Budget) Take(namespace string, cost Price) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(b.account(namespace), cost)
}

// End is told when that for which paid was spent is over, and what it has cost in the end.
func (b *Budget) End(namespace string, paid, cost Price) {
	b.change(namespace, func(a *account) {
		b.over(a, paid)
		a.left = a.left.plus(paid).plus(cost.times(-1)).atMost(b.Most)
	})
}

// Charge spends without asking for what is over already; a negative cost gives back.
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

// Refund gives back what was spent for something that was not done.
func (b *Budget) Refund(namespace string, paid Price) { b.Charge(namespace, paid.times(-1)) }

// Withdraw forgets that somebody waits, and gives back what it has not used.
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

// account returns that of a namespace, with what it has now.
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

// serve lets those go on whose turn it is.
func (b *Budget) serve(a *account) (wakes []func()) {
	for {
		queue := a.turn()
		w := queue.first()
		if w == nil || !b.may(a, w.cost) {
			break
		}
		queue.next(anybody)
		if a.crowds && w.cost.Bytes >= b.Large { // it was the first there, and has had its turn
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

// turn is the queue that is served next.
func (a *account) turn() *rota {
	if !a.urgent.empty() {
		return &a.urgent
	}
	return &a.queue
}

// serveCrowd lets those of all namespaces go on that wait for the end of large ones.
func (b *Budget) serveCrowd() (wakes []func()) {
	for len(b.crowd) > 0 && b.mayLarge() {
		a := b.crowd[0]
		served := b.serve(a)
		if len(served) == 0 { // it waits for something else, or not at all
			b.crowd, a.crowds = b.crowd[1:], false
		}
		wakes = append(wakes, served...)
	}
	return wakes
}

func anybody(string) bool { return true }

// arm has those that wait looked at again when there is something left, and nobody if none does.
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
	if !a.left.positive() { // else it waits for the end of what is under way, which serves it
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

// Wait is Acquire for those who have the time to wait; it has to be followed by End. It fails with the cause of ctx if
// that ends before.
func (b *Budget) Wait(ctx context.Context, who Party, cost Price, urgent bool) error {
	turn := make(chan struct{}, 1)
	if _, ok := b.Acquire(who, turn, cost, urgent, func() { turn <- struct{}{} }); ok {
		return nil
	}
	select {
	case <-turn:
		_, _ = b.Acquire(who, turn, cost, urgent, nil) // it is granted
		return nil
	case <-ctx.Done():
		b.Withdraw(who, turn)
		return context.Cause(ctx)
	}
}

// Usage says who waits.
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
