package webhook

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// grace is how long a slot stays reserved for a caller that was woken or whose turn in the rate has come.
	grace = 2 * time.Second
	// askAgain is when a waiting caller asks again if it is not woken.
	askAgain = 10 * time.Second
)

// WaitReason says which limit makes a caller wait.
type WaitReason string

// The reasons to wait.
const (
	WaitBreaker     WaitReason = "breaker"
	WaitRate        WaitReason = "rate"
	WaitConcurrency WaitReason = "concurrency"
)

// Wait is the answer of Client.Acquire without a permit.
type Wait struct {
	For    time.Duration // ask again after this time; above zero
	Reason WaitReason
}

// gate holds the limits of one endpoint. It never runs a callback under its lock: methods return the callbacks to run.
type gate struct {
	mu       sync.Mutex
	breaker  breaker
	limits   Breaker
	capacity int // 0: no limit
	inFlight int

	queue  list.List                // of *place, in order of arrival
	places map[string]*list.Element // by id: the queue
	woken  map[string]time.Time     // by id: until when a slot is reserved

	limiter *rate.Limiter
	turns   list.List                // of *turn, earliest first
	turnOf  map[string]*list.Element // by id

	since  time.Time // when the breaker entered its state; zero: initial state
	record record
}

type place struct {
	id   string
	wake func()
}

type turn struct {
	id string
	at time.Time
}

func newGate() *gate {
	return &gate{
		breaker: newBreaker(), places: map[string]*list.Element{}, woken: map[string]time.Time{},
		turnOf: map[string]*list.Element{},
	}
}

// acquire requests a permit for id.
func (g *gate) acquire(d *Definition, id string, wake func()) (leave pass, wait Wait, wakes []func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.configure(d, now)
	if left := g.breaker.wait(now, d.Breaker.OpenFor); left > 0 {
		g.leave(id)
		return pass{}, Wait{For: left, Reason: WaitBreaker}, g.promote(now)
	}
	if left := g.turn(id, now); left > 0 {
		return pass{}, Wait{For: left, Reason: WaitRate}, nil
	}
	if g.capacity > 0 {
		p := g.enqueue(id)
		if wakes = g.promote(now); g.woken[id].IsZero() {
			p.wake = wake // set after promote: a caller that gets its slot at once needs no wake
			return pass{}, Wait{For: askAgain, Reason: WaitConcurrency}, wakes
		}
	}
	g.leave(id)
	g.takeTurn(id)
	g.inFlight++
	defer g.note(g.breaker.status.State, now)
	return g.breaker.pass(), Wait{}, wakes
}

// configure applies the definition, which may have been edited.
func (g *gate) configure(d *Definition, now time.Time) {
	g.limits, g.capacity = d.Breaker, d.Concurrency
	switch {
	case d.RatePerSecond <= 0:
		g.limiter = nil
	case g.limiter == nil:
		g.limiter = rate.NewLimiter(rate.Limit(d.RatePerSecond), 1) // burst 1: evenly spaced
	case g.limiter.Limit() != rate.Limit(d.RatePerSecond):
		g.limiter.SetLimitAt(now, rate.Limit(d.RatePerSecond))
	}
}

// turn returns how long id has to wait for its turn in the rate. A waiting caller keeps its turn, so that many waiting
// callers do not return at once.
func (g *gate) turn(id string, now time.Time) time.Duration {
	if g.limiter == nil {
		return 0
	}
	for e := g.turns.Front(); e != nil && now.Sub(e.Value.(*turn).at) > askAgain+grace; e = g.turns.Front() {
		g.takeTurn(e.Value.(*turn).id)
	}
	if e := g.turnOf[id]; e != nil {
		return max(e.Value.(*turn).at.Sub(now), 0)
	}
	delay := g.limiter.ReserveN(now, 1).DelayFrom(now)
	g.turnOf[id] = g.turns.PushBack(&turn{id: id, at: now.Add(delay)})
	return delay
}

func (g *gate) takeTurn(id string) {
	if e := g.turnOf[id]; e != nil {
		g.turns.Remove(e)
		delete(g.turnOf, id)
	}
}

// free returns the number of slots that are neither used nor reserved.
func (g *gate) free() int { return g.capacity - g.inFlight - len(g.woken) }

// enqueue appends id to the queue, unless it is in the queue or has a reserved slot.
func (g *gate) enqueue(id string) *place {
	if e := g.places[id]; e != nil {
		p := e.Value.(*place)
		p.wake = nil
		return p
	}
	p := &place{id: id}
	if _, kept := g.woken[id]; !kept {
		g.places[id] = g.queue.PushBack(p)
	}
	return p
}

// leave removes id from the queue and drops its reservation.
func (g *gate) leave(id string) {
	if e := g.places[id]; e != nil {
		g.queue.Remove(e)
		delete(g.places, id)
	}
	delete(g.woken, id)
}

// promote reserves the free slots in order of arrival.
func (g *gate) promote(now time.Time) (wakes []func()) {
	for id, until := range g.woken {
		if now.After(until) {
			delete(g.woken, id) // it did not return in time
		}
	}
	for e := g.queue.Front(); e != nil && (g.capacity == 0 || g.free() > 0); e = g.queue.Front() {
		p := e.Value.(*place)
		g.leave(p.id)
		g.woken[p.id] = now.Add(grace)
		if p.wake != nil {
			wakes = append(wakes, p.wake)
		}
	}
	return wakes
}

// release returns the slot.
func (g *gate) release(p pass, outcome outcome) []func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.inFlight--
	defer g.note(g.breaker.status.State, now)
	g.breaker.done(p, outcome, now, g.limits)
	return g.promote(now)
}

// withdraw removes a waiting id.
func (g *gate) withdraw(id string) []func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leave(id)
	g.takeTurn(id)
	return g.promote(time.Now())
}

// note records when the breaker changed its state.
func (g *gate) note(before BreakerState, now time.Time) {
	if g.breaker.status.State != before {
		g.since = now
	}
}

func (g *gate) breakerStatus() BreakerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.status
}
