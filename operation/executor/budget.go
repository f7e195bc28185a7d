package executor

import (
	"context"
	"maps"
	"sync"
	"time"
)

// price is what something costs, or what somebody has.
type price struct{ count, bytes float64 }

func (p price) plus(q price) price            { return price{p.count + q.count, p.bytes + q.bytes} }
func (p price) times(f float64) price         { return price{p.count * f, p.bytes * f} }
func (p price) atMost(q price) price          { return price{min(p.count, q.count), min(p.bytes, q.bytes)} }
func (p price) positive() bool                { return p.count > 0 && p.bytes > 0 }
func (p price) covers(q price) bool           { return p.count >= q.count && p.bytes >= q.bytes }
func untilPositive(has, rate float64) float64 { return max(0, -has/rate) }

// budget bounds what each namespace has done over time: so much per second, and so much at once after a time of rest
// (token buckets). Who has anything left may spend more than that, and others of the namespace wait until it is paid
// back; so the largest costs what it costs, and none is too large. What is under way at a time is bounded likewise.
// Those of a namespace that wait take turns by tenant, those that are urgent first. No namespace waits for another
// one's. But those that have less than half of what a rest brings, tired ones, share what all of them together may have
// per second, so that nobody gets more by having many namespaces; who uses little notices nothing of that. Large ones
// are bounded over all namespaces, too, and go by turns. It is safe for concurrent use and calls nobody under its lock.
type budget struct {
	rate, most price                  // per second, and after a rest
	total      price                  // per second of all tired namespaces together; zero: no bound
	abreast    float64                // bytes under way with which a namespace may begin no more; 0: no bound
	large      float64                // what one has to have of bytes to be large; while large ones have abreast under way none of them begins
	short      func(namespace string) // is told, now and then, of a namespace that has to wait

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
	granted  map[any]price
	waits    int // so far
}

// account is what one namespace has left, and who waits for it.
type account struct {
	namespace     string
	left          price
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

func newBudget(rate, most price, short func(namespace string)) *budget {
	return &budget{
		rate: rate, most: most, short: short, sweepAt: minSweep,
		accounts: make(map[string]*account), waiting: make(map[any]*waiter), granted: make(map[any]price),
	}
}

// acquire spends what something costs and returns what was spent, which may be what an earlier call of the same key
// asked for. If the namespace has nothing left it returns false, and the caller is woken when it is its turn.
func (b *budget) acquire(who party, key any, cost price, urgent bool, wake func()) (price, bool) {
	b.mu.Lock()
	if paid, ok := b.granted[key]; ok {
		delete(b.granted, key)
		b.mu.Unlock()
		return paid, true
	}
	a := b.account(who.namespace)
	w := b.waiting[key]
	if w != nil && (!urgent || w.lane.rota == &a.urgent) {
		b.mu.Unlock()
		return price{}, false
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
	queue.add(who.tenant, w)
	b.waits++
	tell := a.timer == nil && time.Since(a.told) >= shortEvery
	if tell {
		a.told = time.Now()
	}
	b.arm(a)
	b.mu.Unlock()
	if tell {
		b.short(who.namespace)
	}
	return price{}, false
}

// may tells whether a namespace may begin something.
func (b *budget) may(a *account, cost price) bool {
	return b.mayOf(a) && (b.abreast == 0 || cost.bytes < b.large || b.mayLarge() && (len(b.crowd) == 0 || b.crowd[0] == a))
}

// mayLarge tells whether a large one may begin as far as all of them together go: they have a rest, and a rate, as one
// namespace has the former and the tired have the latter.
func (b *budget) mayLarge() bool {
	if b.open >= b.abreast {
		return false
	}
	if b.total == (price{}) {
		return true
	}
	now := time.Now()
	b.spent = max(0, b.spent-b.total.bytes*now.Sub(b.spentAt).Seconds())
	b.spentAt = now
	return b.spent < b.most.bytes
}

// mayOf tells whether a namespace may begin something as far as its own share goes.
func (b *budget) mayOf(a *account) bool {
	return a.left.positive() && (b.abreast == 0 || a.open < b.abreast)
}

func (b *budget) begin(a *account, cost price) {
	a.left, a.open = a.left.plus(cost.times(-1)), a.open+cost.bytes
	if cost.bytes >= b.large {
		b.open, b.spent = b.open+cost.bytes, b.spent+cost.bytes
	}
	b.note(a)
}

// over is begin's end.
func (b *budget) over(a *account, paid price) {
	a.open -= paid.bytes
	if paid.bytes >= b.large {
		b.open -= paid.bytes
	}
}

// note finds out whether a namespace is tired.
func (b *budget) note(a *account) {
	if tired := !a.left.covers(b.most.times(0.5)); tired != a.tired {
		if a.tired = tired; tired {
			b.tired++
		} else {
			b.tired--
		}
	}
}

// rateOf is what a namespace gets per second.
func (b *budget) rateOf(a *account) price {
	if !a.tired || b.total == (price{}) {
		return b.rate
	}
	return b.rate.atMost(b.total.times(1 / float64(b.tired)))
}

// take spends without asking.
func (b *budget) take(namespace string, cost price) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(b.account(namespace), cost)
}

// end is told when that for which paid was spent is over, and what it has cost in the end.
func (b *budget) end(namespace string, paid, cost price) {
	b.change(namespace, func(a *account) {
		b.over(a, paid)
		a.left = a.left.plus(paid).plus(cost.times(-1)).atMost(b.most)
	})
}

// charge spends without asking for what is over already; a negative cost gives back.
func (b *budget) charge(namespace string, cost price) {
	b.change(namespace, func(a *account) { a.left = a.left.plus(cost.times(-1)).atMost(b.most) })
}

func (b *budget) change(namespace string, change func(*account)) {
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

// withdraw forgets that somebody waits, and gives back what it has not used.
func (b *budget) withdraw(who party, key any) {
	b.change(who.namespace, func(a *account) {
		if paid, ok := b.granted[key]; ok {
			delete(b.granted, key)
			b.over(a, paid)
			a.left = a.left.plus(paid).atMost(b.most)
		}
		if w := b.waiting[key]; w != nil {
			delete(b.waiting, key)
			w.lane.rota.remove(w)
		}
	})
}

// account returns that of a namespace, with what it has now.
func (b *budget) account(namespace string) *account {
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
				return a.timer == nil && !a.crowds && a.open == 0 && a.left.covers(b.most)
			})
			b.sweepAt = max(minSweep, 2*len(b.accounts))
		}
		a = &account{namespace: namespace, left: b.most, at: now}
		b.accounts[namespace] = a
	}
	b.refill(a, now)
	return a
}

func (b *budget) refill(a *account, now time.Time) {
	a.left = a.left.plus(b.rateOf(a).times(now.Sub(a.at).Seconds())).atMost(b.most)
	a.at = now
	b.note(a)
}

// serve lets those go on whose turn it is.
func (b *budget) serve(a *account) (wakes []func()) {
	for {
		queue := a.turn()
		w := queue.first()
		if w == nil || !b.may(a, w.cost) {
			break
		}
		queue.next(anybody)
		if a.crowds && w.cost.bytes >= b.large { // it was the first there, and has had its turn
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
func (b *budget) serveCrowd() (wakes []func()) {
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
func (b *budget) arm(a *account) {
	if a.urgent.empty() && a.queue.empty() {
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		return
	}
	if w := a.turn().first(); !a.crowds && b.abreast > 0 && w.cost.bytes >= b.large && b.mayOf(a) {
		b.crowd, a.crowds = append(b.crowd, a), true
	}
	wait := lookAtShare
	if !a.left.positive() { // else it waits for the end of what is under way, which serves it
		rate := b.rateOf(a)
		seconds := max(untilPositive(a.left.count, rate.count), untilPositive(a.left.bytes, rate.bytes))
		wait = min(wait, time.Duration(min(seconds, 1)*float64(time.Second))+time.Millisecond)
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() { b.charge(a.namespace, price{}) })
		return
	}
	a.timer.Reset(wait)
}

// wait is acquire for those who have the time to wait; it has to be followed by end. It fails with the cause of ctx if
// that ends before.
func (b *budget) wait(ctx context.Context, who party, cost price, urgent bool) error {
	turn := make(chan struct{}, 1)
	if _, ok := b.acquire(who, turn, cost, urgent, func() { turn <- struct{}{} }); ok {
		return nil
	}
	select {
	case <-turn:
		_, _ = b.acquire(who, turn, cost, urgent, nil) // it is granted
		return nil
	case <-ctx.Done():
		b.withdraw(who, turn)
		return context.Cause(ctx)
	}
}

func (b *budget) usage() usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := usage{waiting: len(b.waiting), waits: b.waits}
	for _, a := range b.accounts {
		if a.timer != nil {
			u.namespaces++
		}
	}
	return u
}
