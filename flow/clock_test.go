package flow

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// handClock is a clock that a test advances.
type handClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[*alarm]struct{}
}

type alarm struct {
	at time.Time
	f  func()
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{c.now.Add(d), f}
	if c.alarms == nil {
		c.alarms = map[*alarm]struct{}{}
	}
	c.alarms[a] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, set := c.alarms[a]
		delete(c.alarms, a)
		return set
	}
}

// add advances the clock and starts the alarms that are due.
func (c *handClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for a := range c.alarms {
		if !a.at.After(c.now) {
			delete(c.alarms, a)
			go a.f()
		}
	}
}

// An engine uses only its clock: for delays, timeouts, deadlines and the times of positions.
func TestAnEngineUsesItsClock(t *testing.T) {
	t.Parallel()
	clock := &handClock{now: time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC)}
	bubble(t, EngineOptions{clock: clock}, func(t *testing.T, e *Engine) {
		saved := &Memory{}
		p := &packet{}
		h := start(t, e, New("f",
			Step("delay", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) }),
			Step("await", func(ctx context.Context, f *fib) Next { return f.Await(Timeout(time.Minute)).Else("late") }),
			Step("late", func(ctx context.Context, f *fib) Next {
				f.Packet.note(f.Now().Format(time.TimeOnly))
				return f.Next()
			}),
		), p, StartOptions{Key: "k", Positions: saved})
		step := func() string { // the step after all goroutines are blocked
			synctest.Wait()
			return h.Step()
		}
		time.Sleep(24 * time.Hour)
		if got := step(); got != "delay" {
			t.Fatalf("it is at %s too early", got)
		}
		if at, _, _ := saved.Load(t.Context(), "k"); !at.Wake.Equal(clock.Now().Add(time.Hour)) ||
			!at.Begun.Equal(clock.Now()) {
			t.Errorf("saved %+v", at)
		}
		clock.add(59 * time.Minute)
		if got := step(); got != "delay" {
			t.Fatalf("it is at %s after 59 minutes", got)
		}
		clock.add(time.Minute)
		if got := step(); got != "await" {
			t.Fatalf("it is at %s after an hour", got)
		}
		clock.add(time.Minute)
		if err := h.Wait(t.Context()); err != nil || !slices.Equal(p.log, []string{"13:01:00"}) {
			t.Errorf("%v, %v", err, p.log)
		}
		if len(clock.alarms) > 0 {
			t.Errorf("%d alarms are left", len(clock.alarms))
		}
	})
}

// The number of workers bounds the number of running fibers. Parked fibers need no worker.
func TestWorkersBoundRunningFibers(t *testing.T) {
	t.Parallel()
	const workers = 3
	bubble(t, EngineOptions{Workers: workers}, func(t *testing.T, e *Engine) {
		var inside, most atomic.Int32
		work := func(ctx context.Context, f *fib) Next {
			defer inside.Add(-1)
			for n := inside.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Second)
			return f.Delay(time.Minute)
		}
		fl := New("f", Step("a", work), Step("b", work))
		began := time.Now()
		for range 60 {
			start(t, e, fl, &packet{}, StartOptions{})
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); most.Load() != workers || took < 60*2*time.Second/workers || took > 4*time.Minute {
			t.Errorf("%d ran at a time, all in %v", most.Load(), took)
		}
	})
}
