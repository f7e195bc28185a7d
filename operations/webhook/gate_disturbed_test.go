package webhook

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// TestGateDisturbed lets callers ask for permits, and then use, return or withdraw them, or vanish. There are never
// more permits than places, nor more than the rate allows. Every caller that keeps asking gets one. One call decides
// about an open breaker, and calls from before do not count. At the end all places are free.
func TestGateDisturbed(t *testing.T) {
	t.Parallel()
	seed.Play(t, 60, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			closed := BreakerStatus{State: Closed}
			b := &book{t: t, seed: seed, gate: newGate(closed), began: time.Now(), status: closed}
			b.d = &Definition{Concurrency: rnd.IntN(4), RatePerSecond: []float64{0, 0, 5, 0.5}[rnd.IntN(4)]}
			b.d.Breaker = Breaker{Failures: 2 + rnd.IntN(3), OpenFor: time.Duration(1+rnd.IntN(20)) * time.Second}
			var callers sync.WaitGroup
			for c := range 1 + rnd.IntN(12) {
				callers.Go(func() { b.caller(c) })
			}
			callers.Wait()
			b.rest()
		})
	})
}

// book checks the invariants of a gate. Its lock makes each request and its record one step.
type book struct {
	t     *testing.T
	seed  uint64
	d     *Definition
	began time.Time

	mu      sync.Mutex
	gate    *gate
	held    int
	passed  int
	status  BreakerStatus
	probing bool
	opened  int // how often the breaker has opened
}

func (b *book) errorf(format string, args ...any) {
	b.t.Helper()
	b.t.Errorf("FAIRLEAD_SEED=%d: %s", b.seed, fmt.Sprintf(format, args...))
}

func (b *book) caller(number int) {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, number) // a hash accepts all writes
	rnd := rand.New(rand.NewPCG(b.seed, h.Sum64()))
	for i := range 8 {
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		if p := b.ask(fmt.Sprint(number, "-", i), rnd); p != nil {
			time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
			b.end(p, []outcome{outcomeNone, outcomeGood, outcomeBad, outcomeBad}[rnd.IntN(4)])
		}
	}
}

// ticket is a permit and the book's knowledge of it.
type ticket struct {
	leave  pass
	probe  bool
	opened int
}

// ask asks for a permit when the gate says so. Some callers withdraw or vanish.
func (b *book) ask(id string, rnd *rand.Rand) *ticket {
	began := time.Now()
	for {
		woken := make(chan struct{}, 1)
		p, wait := b.acquire(id, func() { woken <- struct{}{} })
		if p != nil {
			return p
		}
		switch rnd.IntN(20) {
		case 0:
			wakeAll(b.gate.withdraw(id))
			return nil
		case 1:
			return nil
		}
		if waited := time.Since(began); waited > 30*time.Minute {
			b.errorf("%s has asked for %v: %+v", id, waited, wait)
			return nil
		}
		select {
		case <-woken:
		case <-time.After(wait.For):
		}
	}
}

func wakeAll(wakes []func()) {
	for _, wake := range wakes {
		wake()
	}
}

func (b *book) acquire(id string, wake func()) (*ticket, Wait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	leave, wait, wakes := b.gate.acquire(b.d, id, wake)
	wakeAll(wakes)
	if wait.For > 0 {
		return nil, wait
	}
	now := time.Now()
	if b.held++; b.d.Concurrency > 0 && b.held > b.d.Concurrency {
		b.errorf("%d permits of %d", b.held, b.d.Concurrency)
	}
	if b.passed++; b.d.RatePerSecond > 0 && float64(b.passed) > 1.001+b.d.RatePerSecond*now.Sub(b.began).Seconds() {
		b.errorf("%d permits in %v at %v per second", b.passed, now.Sub(b.began), b.d.RatePerSecond)
	}
	p := &ticket{leave: leave, opened: b.opened, probe: b.status.State != Closed}
	switch {
	case b.status.State == Open && now.Before(b.status.Until):
		b.errorf("%s passes an open breaker", id)
	case b.probing:
		b.errorf("%s passes while another call decides", id)
	case p.probe:
		b.status, b.probing = BreakerStatus{State: HalfOpen, Failures: b.status.Failures}, true
	}
	b.compare()
	return p, Wait{}
}

func (b *book) end(p *ticket, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wakeAll(b.gate.release(p.leave, o))
	b.held--
	if p.probe {
		b.probing = false
	}
	switch {
	case p.opened != b.opened, o == outcomeNone:
	case o == outcomeGood:
		b.status = BreakerStatus{State: Closed}
	default:
		if b.status.Failures++; p.probe || b.status.Failures >= b.d.Breaker.Failures {
			b.status.State, b.status.Until = Open, time.Now().Add(b.d.Breaker.OpenFor)
			b.opened++
		}
	}
	b.compare()
}

func (b *book) compare() {
	b.t.Helper()
	if got := b.gate.breakerStatus(); got != b.status {
		b.errorf("the breaker is %+v, not %+v", got, b.status)
	}
}

// rest checks that no place is taken after all callers have left, and that new callers pass.
func (b *book) rest() {
	for range 200 { // the gate reserves places for vanished callers, a moment for each
		time.Sleep(time.Minute)
		b.gate.withdraw("nobody")
	}
	if g := b.gate; g.inFlight != 0 || len(g.woken) != 0 || g.queue.Len() != 0 || b.held != 0 {
		b.errorf("left: %d in flight, %d kept, %d waiting", g.inFlight, len(g.woken), g.queue.Len())
	}
	for i := range 3 {
		if p, wait := b.acquire(fmt.Sprint("new", i), nil); p != nil {
			b.end(p, outcomeGood)
		} else {
			b.errorf("a newcomer waits: %+v", wait)
		}
		time.Sleep(time.Minute)
	}
	if n := b.gate.turns.Len(); n > 1 {
		b.errorf("%d turns are left", n)
	}
}
