package webhook

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-io/fairlead/internal/fair"
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

	queue fair.Queue[string, func()] // wakes by id, in order of arrival
	woken map[string]time.Time       // by id: until when a slot is reserved

	limiter *rate.Limiter
	turns   fair.Queue[string, time.Time] // by id, earliest first

	since  time.Time // when the breaker entered its state; zero: initial state
	record record
}

func newGate(b BreakerStatus) *gate {
	return &gate{breaker: breaker{status: b}, woken: map[string]time.Time{}}
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
		place := g.enqueue(id)
		if wakes = g.promote(now); g.woken[id].IsZero() {
			place.Value = wake // set after promote: a caller that gets its slot at once needs no wake
			return pass{}, Wait{For: askAgain, Reason: WaitConcurrency}, wakes
		}
	}
	g.leave(id)
	g.takeTurn(id)
	g.inFlight++
	defer g.breakerWas(g.breaker.status.State, now)
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
	for first := g.turns.First(); first != nil && now.Sub(first.Value) > askAgain+grace; first = g.turns.First() {
		first.Remove()
	}
	if turn := g.turns.Line(id).First(); turn != nil {
		return max(turn.Value.Sub(now), 0)
	}
	delay := g.limiter.ReserveN(now, 1).DelayFrom(now)
	g.turns.Push(id, now.Add(delay))
	return delay
}

func (g *gate) takeTurn(id string) { g.turns.Line(id).First().Remove() }

// free returns the number of slots that are neither used nor reserved.
func (g *gate) free() int { return g.capacity - g.inFlight - len(g.woken) }

// enqueue returns the place of id in the queue, without a wake. The place is in no queue if a slot is reserved for id.
func (g *gate) enqueue(id string) *fair.Item[string, func()] {
	if place := g.queue.Line(id).First(); place != nil {
		place.Value = nil
		return place
	}
	if _, reserved := g.woken[id]; reserved {
		return &fair.Item[string, func()]{}
	}
	return g.queue.Push(id, nil)
}

// leave removes id from the queue and drops its reservation.
func (g *gate) leave(id string) {
	g.queue.Line(id).First().Remove()
	delete(g.woken, id)
}

// promote reserves the free slots in order of arrival.
func (g *gate) promote(now time.Time) (wakes []func()) {
	for id, until := range g.woken {
		if now.After(until) {
			delete(g.woken, id) // it did not return in time
		}
	}
	for first := g.queue.First(); first != nil && (g.capacity == 0 || g.free() > 0); first = g.queue.First() {
		g.woken[first.Key()] = now.Add(grace)
		first.Remove()
		if first.Value != nil {
			wakes = append(wakes, first.Value)
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
	defer g.breakerWas(g.breaker.status.State, now)
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

// remember records the result of a try.
func (g *gate) remember(res Result, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.record.add(res, now)
}

func (g *gate) state(namespace, name string) TargetState {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.breaker.status
	s := TargetState{
		Namespace: namespace, Webhook: name, Circuit: b.State, Since: g.since, Until: b.Until, InARow: b.Failures,
		UnderWay: g.inFlight, Concurrency: g.capacity, Waiting: g.queue.Len(),
	}
	if g.limiter != nil {
		s.RatePerSecond = float64(g.limiter.Limit())
		s.Waiting += g.turns.Len()
	}
	g.record.describe(&s)
	return s
}

// breakerWas records when the breaker changed its state.
func (g *gate) breakerWas(before BreakerState, now time.Time) {
	if g.breaker.status.State != before {
		g.since = now
	}
}

func (g *gate) breakerStatus() BreakerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.status
}
