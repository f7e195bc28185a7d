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

// budget bounds what each namespace has done over time: so much per second, and so much at once after a time of rest (token buckets). Who
// has anything left may spend more than that, and others of the namespace wait until it is paid back; so the largest costs what it costs, and
// none is too large. What is under way at a time is bounded likewise. Those of a namespace that wait take turns by tenant, those that are urgent first. No namespace waits for another one's. It
// is safe for concurrent use and calls nobody under its lock.
type budget struct {
	rate, most price                  // per second, and after a rest
	abreast    float64                // bytes under way with which a namespace may begin no more; 0: no bound
	short      func(namespace string) // is told, now and then, of a namespace that has to wait

	mu       sync.Mutex
	accounts map[string]*account
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
	urgent, queue rota
	timer         *time.Timer // nil while nobody waits
	told          time.Time
}

// accounts of namespaces that have not spent anything lately are forgotten when there are so many; shortEvery is how often short is told of
// the same one.
const (
	minSweep   = 1024
	shortEvery = time.Minute
)

func newBudget(rate, most price, short func(namespace string)) *budget {
	return &budget{
		rate: rate, most: most, short: short, sweepAt: minSweep,
		accounts: make(map[string]*account), waiting: make(map[any]*waiter), granted: make(map[any]price),
	}
}

// acquire spends what something costs and returns what was spent, which may be what an earlier call of the same key asked for. If the namespace
// has nothing left it returns false, and the caller is woken when it is its turn.
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
	} else if a.urgent.empty() && (urgent || a.queue.empty()) && b.may(a) {
		a.begin(cost)
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
func (b *budget) may(a *account) bool {
	return a.left.positive() && (b.abreast == 0 || a.open < b.abreast)
}

func (a *account) begin(cost price) {
	a.left, a.open = a.left.plus(cost.times(-1)), a.open+cost.bytes
}

// take spends without asking.
func (b *budget) take(namespace string, cost price) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.account(namespace).begin(cost)
}

// end is told when that for which paid was spent is over, and what it has cost in the end.
func (b *budget) end(namespace string, paid, cost price) {
	b.change(namespace, func(a *account) {
		a.open -= paid.bytes
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
	wakes := b.serve(a)
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
			a.left, a.open = a.left.plus(paid).atMost(b.most), a.open-paid.bytes
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
	a := b.accounts[namespace]
	if a == nil {
		if len(b.accounts) >= b.sweepAt {
			maps.DeleteFunc(b.accounts, func(_ string, a *account) bool {
				b.refill(a, now)
				return a.timer == nil && a.open == 0 && a.left.covers(b.most)
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
	a.left = a.left.plus(b.rate.times(now.Sub(a.at).Seconds())).atMost(b.most)
	a.at = now
}

// serve lets those go on whose turn it is.
func (b *budget) serve(a *account) (wakes []func()) {
	for b.may(a) {
		w := a.urgent.next(anybody)
		if w == nil {
			w = a.queue.next(anybody)
		}
		if w == nil {
			break
		}
		a.begin(w.cost)
		delete(b.waiting, w.key)
		b.granted[w.key] = w.cost
		wakes = append(wakes, w.wake)
	}
	b.arm(a)
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
	if a.left.positive() { // it waits for the end of what is under way, which serves it
		if a.timer == nil {
			a.timer = time.AfterFunc(time.Second, func() { b.charge(a.namespace, price{}) })
		}
		return
	}
	seconds := max(untilPositive(a.left.count, b.rate.count), untilPositive(a.left.bytes, b.rate.bytes))
	wait := time.Duration(seconds*float64(time.Second)) + time.Millisecond
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() { b.charge(a.namespace, price{}) })
		return
	}
	a.timer.Reset(wait)
}

// wait is acquire for those who have the time to wait, and whose cost is small: it does not count as under way. It fails with the cause of ctx if that ends before.
func (b *budget) wait(ctx context.Context, namespace string, cost price) error {
	turn := make(chan struct{}, 1)
	who := party{namespace: namespace}
	if _, ok := b.acquire(who, turn, cost, false, func() { turn <- struct{}{} }); ok {
		b.end(namespace, cost, cost)
		return nil
	}
	select {
	case <-turn:
		_, _ = b.acquire(who, turn, cost, false, nil) // it is granted
		b.end(namespace, cost, cost)
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
