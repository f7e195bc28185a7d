package flow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// object is a Wait as a cache would implement it: events, a cached and a live state.
type object struct {
	cached, live atomic.Bool
	checks       atomic.Int32
	lives        atomic.Int32
	watched      atomic.Int32
	stopped      atomic.Int32
	mu           sync.Mutex
	waker        Waker
	err          error
	onCheck      func()
}

func (o *object) Watch(w Waker) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waker = w
	o.watched.Add(1)
	return func() { o.stopped.Add(1) }
}

func (o *object) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waker.Wake()
}

func (o *object) Check(_ context.Context, live bool) (bool, error) {
	o.checks.Add(1)
	if o.onCheck != nil {
		o.onCheck()
	}
	if live {
		o.lives.Add(1)
		return o.live.Load(), o.err
	}
	return o.cached.Load(), o.err
}

func (o *object) Backstop() time.Duration { return 10 * time.Second }

// await returns a flow that awaits, with a step that follows an error.
func await(orElse string, waits ...Wait) *Flow[packet] {
	return New("f", Step("a", func(ctx context.Context, f *fib) Next {
		n := f.Await(waits...)
		if orElse != "" {
			n = n.Else(orElse)
		}
		return n
	}), note("then"), note("late"))
}

func TestAwait(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	cases := []struct {
		reason string
		waits  func(o *object) []Wait
		act    func(o *object)
		orElse string
		err    error
		took   time.Duration
		log    string
	}{
		{
			"a condition that holds does not park", nil, func(o *object) { o.cached.Store(true) }, "", nil, 0,
			"then late",
		},
		{"an event ends it", nil, func(o *object) {
			time.AfterFunc(time.Second, func() { o.cached.Store(true); o.wake() })
		}, "", nil, time.Second, "then late"},
		{"an event that changes nothing does not", nil, func(o *object) {
			time.AfterFunc(time.Second, func() { o.wake() })
			time.AfterFunc(2*time.Second, func() { o.cached.Store(true); o.wake() })
		}, "", nil, 2 * time.Second, "then late"},
		{"a missed event is found by the live check", nil, func(o *object) {
			time.AfterFunc(3*time.Second, func() { o.live.Store(true) })
		}, "", nil, 10 * time.Second, "then late"}, // or up to half of that earlier
		{
			"a timeout fails the step", func(o *object) []Wait { return []Wait{o, Timeout(25 * time.Second)} }, nil, "",
			ErrTimeout, 25 * time.Second, "",
		},
		{
			"a timeout makes a last live check", func(o *object) []Wait { return []Wait{o, Timeout(4 * time.Second)} },
			func(o *object) {
				time.AfterFunc(time.Second, func() { o.live.Store(true) })
			}, "", nil, 4 * time.Second, "then late",
		},
		{"an event within the registration", func(o *object) []Wait { return []Wait{eager{o}} }, func(o *object) {
			o.cached.Store(true)
		}, "", nil, 0, "then late"},
		{
			"a timeout leads to another step",
			func(o *object) []Wait { return []Wait{o, Timeout(25 * time.Second)} }, nil, "late", nil,
			25 * time.Second, "late",
		},
		{
			"the shortest timeout counts", func(o *object) []Wait { return []Wait{Timeout(time.Hour), o, Timeout(time.Second)} },
			nil, "", ErrTimeout, time.Second, "",
		},
		{"a check that fails", nil, func(o *object) { o.err = broken }, "", broken, 0, ""},
		{"a failing check leads to another step", nil, func(o *object) { o.err = broken }, "late", nil, 0, "late"},
		{
			"any of the waits: a time",
			func(o *object) []Wait { return []Wait{o, Until(time.Now().Add(4 * time.Second))} }, nil, "",
			nil, 4 * time.Second, "then late",
		},
		{"any of the waits: a time between live checks", func(o *object) []Wait {
			return []Wait{o, Until(time.Now().Add(14 * time.Second))}
		}, nil, "", nil, 14 * time.Second, "then late"},
		{
			"a time that has passed", func(o *object) []Wait { return []Wait{Until(time.Now().Add(-time.Second))} }, nil, "",
			nil, 0, "then late",
		},
		{"a nil wait", func(o *object) []Wait { return []Wait{o, nil} }, nil, "late", nil, 0, "late"},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			o, p, began := &object{}, &packet{}, time.Now()
			waits := []Wait{o}
			if c.waits != nil {
				waits = c.waits(o)
			}
			if c.act != nil {
				c.act(o)
			}
			err := start(t, e, await(c.orElse, waits...), p, StartOptions{}).Wait(t.Context())
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%s: %v", c.reason, err)
			}
			took := time.Since(began)
			if spread := strings.Contains(c.reason, "missed event"); took > c.took ||
				took < c.took && !(spread && took >= c.took/2) {
				t.Errorf("%s: took %v, want %v", c.reason, took, c.took)
			}
			if got := strings.Join(p.log, " "); got != c.log {
				t.Errorf("%s: ran %q, want %q", c.reason, got, c.log)
			}
			if o.watched.Load() != o.stopped.Load() {
				t.Errorf("%s: %d watches, %d stopped", c.reason, o.watched.Load(), o.stopped.Load())
			}
			checks := o.checks.Load()
			o.wake() // an outdated event
			synctest.Wait()
			if o.checks.Load() != checks {
				t.Errorf("%s: a late wake has an effect", c.reason)
			}
		})
	}
}

func TestAWakeWhileTheConditionIsCheckedIsNotLost(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		o, began := &object{}, time.Now()
		o.onCheck = func() { // the event comes after the state was read
			if o.checks.Load() == 1 {
				o.cached.Store(true)
				o.wake()
			}
		}
		check := func(ctx context.Context) (bool, error) { return false, nil }
		if err := start(t, e, await("", lateState{o}, Func(check, 0)), &packet{},
			StartOptions{}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) != 0 {
			t.Errorf("found only after %v", time.Since(began))
		}
	})
}

// eager wakes its waker during the registration.
type eager struct{ *object }

func (e eager) Watch(w Waker) func() {
	w.Wake()
	return e.object.Watch(w)
}

func TestTheFirstLiveChecksOfManyAreSpread(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		times := map[time.Time]int{}
		var mu sync.Mutex
		for range 100 {
			o := &object{}
			o.onCheck = func() {
				mu.Lock()
				defer mu.Unlock()
				times[time.Now()]++
			}
			start(t, e, await("", o), &packet{}, StartOptions{})
		}
		synctest.Wait()
		began := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(times) < 50 {
			t.Errorf("100 fibers check at %d times", len(times))
		}
		n := 0
		for at, checks := range times {
			n += checks
			if after := at.Sub(began); after != 0 && after < 5*time.Second {
				t.Errorf("a check after %v", after)
			}
		}
		if n < 200 {
			t.Errorf("%d checks, want two of each at least", n)
		}
	})
}

// lateState reads its state before the event arrives.
type lateState struct{ *object }

func (l lateState) Check(ctx context.Context, live bool) (bool, error) {
	before := l.cached.Load()
	_, err := l.object.Check(ctx, live)
	return before, err
}

func TestSignal(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		var s, other Signal
		var fired Wait
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next { return f.Await(&other, &s) }),
			Step("b", func(ctx context.Context, f *fib) Next {
				fired, _ = Value[Wait](f)
				return f.Next()
			}))
		h := start(t, e, fl, &packet{}, StartOptions{})
		synctest.Wait()
		busy := make(chan struct{})
		start(t, e, New("busy", Step("a", func(ctx context.Context, f *fib) Next { <-busy; return f.Next() })), &packet{},
			StartOptions{})
		synctest.Wait()
		s.Set()
		s.Clear() // while no worker is free to read it
		close(busy)
		synctest.Wait()
		if h.Status() != Parked {
			t.Fatalf("a pulse that had ended before the check resumed the fiber: %v", h.Status())
		}
		s.Set()
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fired != &s {
			t.Errorf("fired %v", fired)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.wakers)+len(other.wakers) != 0 {
			t.Error("a waker remains")
		}
	})
}

func TestADeadlineIsOnlyThatOfItsStep(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		cut := func(ctx context.Context, f *fib) Next { // runs for 2 s, or until its context ends
			select {
			case <-ctx.Done():
				return f.Fail(context.Cause(ctx))
			case <-time.After(2 * time.Second):
				return f.Next()
			}
		}
		cases := []struct {
			reason string
			nodes  []Node[packet]
			err    string
		}{
			{"the following step has no deadline", []Node[packet]{Step("a", stay, Deadline(time.Second)), Step("b", cut)}, ""},
			{
				"the following step has a longer one",
				[]Node[packet]{Step("a", stay, Deadline(time.Second)), Step("b", cut, Deadline(time.Minute))},
				"",
			},
			{"a step after one that was cut", []Node[packet]{
				Step("a", cut, Deadline(time.Second), OnError("b")), Step("b", cut),
			}, ""},
			{
				"its own counts",
				[]Node[packet]{Step("a", stay, Deadline(time.Minute)), Step("b", cut, Deadline(time.Second))},
				"f/b: deadline of the step: timed out",
			},
		}
		for _, c := range cases {
			err := start(t, e, New("f", c.nodes...), &packet{}, StartOptions{}).Wait(t.Context())
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != c.err {
				t.Errorf("%s: %q, want %q", c.reason, text, c.err)
			}
		}
	})
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	forever := func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) }
	cases := []struct {
		reason  string
		node    Node[packet]
		timeout time.Duration // of the fiber
		took    time.Duration
		want    error
		log     string
	}{
		{"while running", Step("a", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Fail(ctx.Err())
		}, Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{"while running, uninterrupted: its effects stay", Step("a", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Next()
		}, Deadline(time.Second)), 0, time.Second, nil, "after"},
		{"a handler gets a context of its own", Group("g",
			Step("a", func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Fail(ctx.Err()) }, Deadline(time.Second),
				OnError("b")),
			Step("b", func(ctx context.Context, f *fib) Next {
				if ctx.Err() != nil || !errors.Is(f.Err(), ErrTimeout) {
					return f.Fail(errors.Join(ctx.Err(), f.Err()))
				}
				return f.Next()
			})), 0, time.Second, nil, "after"},
		{"while delayed", Step("a", forever, Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{"while suspended", Step("a", func(ctx context.Context, f *fib) Next { return f.Suspend(f.Token()) },
			Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{"while awaiting", Step("a", func(ctx context.Context, f *fib) Next { return f.Await(&Signal{}) },
			Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{"while forked", children("a", []fstep{forever, forever}, Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{
			"while forked, children that are slow to stop",
			children("a", []fstep{forever, func(ctx context.Context, f *fib) Next {
				<-ctx.Done()
				time.Sleep(time.Second)
				return f.Next()
			}}, Deadline(time.Second)), 0, 2 * time.Second, ErrTimeout, "",
		},
		{"retries included", Step("a", func(ctx context.Context, f *fib) Next { return f.Retry(300 * time.Millisecond) },
			Deadline(time.Second)), 0, time.Second, ErrTimeout, ""},
		{
			"no retry beyond it", Step("a", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) },
				Deadline(5*time.Second), Retry(Backoff{Base: 2 * time.Second, Max: 2 * time.Second})), 0, 4 * time.Second, errBad,
			"",
		},
		{"of the fiber, parked", Step("a", forever), time.Minute, time.Minute, ErrTimeout, ""},
		{"of the fiber, running", Step("a", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Fail(context.Cause(ctx))
		}), time.Minute, time.Minute, ErrTimeout, ""},
		{"of the fiber: a step that ignores it is the last", Group("g", Step("a", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Next()
		}), note("never")), time.Minute, time.Minute, ErrTimeout, ""},
		{
			"of the fiber: no handler outlives it", Step("a", forever, OnError("after")), time.Minute, time.Minute, ErrTimeout,
			"",
		},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{Backstop: -1}, func(t *testing.T, e *Engine) {
			p, began := &packet{}, time.Now()
			h := start(t, e, New("f", c.node, note("after")), p, StartOptions{Timeout: c.timeout})
			err := h.Wait(t.Context())
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err != nil && h.Status() != Failed {
				t.Errorf("%s: %v, %v", c.reason, h.Status(), err)
			}
			took := time.Since(began)
			if spread := strings.Contains(c.reason, "missed event"); took > c.took ||
				took < c.took && !(spread && took >= c.took/2) {
				t.Errorf("%s: took %v, want %v", c.reason, took, c.took)
			}
			if got := strings.Join(p.log, " "); got != c.log {
				t.Errorf("%s: ran %q", c.reason, got)
			}
		})
	}
}
