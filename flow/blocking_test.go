package flow

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// tally counts concurrent entries, and their maximum.
type tally struct {
	mu           sync.Mutex
	inside, most int
}

func (c *tally) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside++
	c.most = max(c.most, c.inside)
}

func (c *tally) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
}

// request returns a step that waits in Blocking for d.
func (c *tally) request(d time.Duration) fstep {
	return func(ctx context.Context, f *fib) Next {
		c.enter()
		defer c.leave()
		Blocking(ctx, func() { time.Sleep(d) })
		return f.Next()
	}
}

// drain waits until all fibers have ended, and checks that the workers are as before the first one.
func drain(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := &e.sched; s.blocking != 0 || s.nidle != len(s.workers) || len(s.workers) > s.limit {
		t.Errorf("at rest there are %d workers, %d of them idle and %d in Blocking, with a limit of %d", len(s.workers),
			s.nidle,
			s.blocking, s.limit)
	}
	for i, w := range e.sched.workers {
		if int(w.index) != i || w.blocking != 0 {
			t.Errorf("worker %d has the index %d and %d calls of Blocking", i, w.index, w.blocking)
		}
	}
}

// Requests run beside the workers, up to their own bound. Beyond it they keep their workers.
func TestBlockingRunsBesideWorkers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opt    EngineOptions
		fibers int
		most   int
		took   time.Duration
	}{
		{"the defaults are enough for 400", EngineOptions{}, 400, 400, time.Second},
		{"64 workers and 512 requests", EngineOptions{Workers: 64}, 600, 576, 2 * time.Second},
		{"a bound of 8", EngineOptions{Workers: 4, Requests: 8}, 100, 12, 9 * time.Second},
		{"none beside the workers", EngineOptions{Workers: 4, Requests: -1}, 10, 4, 3 * time.Second},
		{"a group has no more than its workers", EngineOptions{Workers: 4, PerGroup: 3}, 10, 3, 4 * time.Second},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, tc.opt, func(t *testing.T, e *Engine) {
				var c tally
				fl, began := New("f", Step("get", c.request(time.Second))), time.Now()
				for range tc.fibers {
					start(t, e, fl, &packet{}, StartOptions{})
				}
				drain(t, e)
				if took := time.Since(began); took != tc.took || c.most != tc.most {
					t.Errorf("%d ran at a time, all in %v; want %d and %v", c.most, took, tc.most, tc.took)
				}
			})
		})
	}
}

// Outside of Blocking, no fiber begins while as many run as there are workers.
func TestBlockingKeepsTheNumberOfWorkers(t *testing.T) {
	t.Parallel()
	const workers = 3
	bubble(t, EngineOptions{Workers: workers}, func(t *testing.T, e *Engine) {
		var code tally
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			code.enter()
			time.Sleep(time.Second)
			code.leave()
			Blocking(ctx, func() { time.Sleep(time.Minute) })
			return f.Next()
		}))
		began := time.Now()
		for range 30 {
			start(t, e, fl, &packet{}, StartOptions{})
		}
		drain(t, e)
		if took := time.Since(began); code.most != workers || took != time.Minute+10*time.Second {
			t.Errorf("%d ran at a time, all in %v", code.most, took)
		}
	})
}

// A step may hold a lock across a request, while the fibers on all workers wait for the lock.
func TestBlockingNeverWaitsForAWorker(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 2}, func(t *testing.T, e *Engine) {
		lock := make(chan struct{}, 1)
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			lock <- struct{}{}
			defer func() { <-lock }()
			Blocking(ctx, func() { time.Sleep(time.Second) })
			return f.Next()
		}))
		began := time.Now()
		for range 20 {
			start(t, e, fl, &packet{}, StartOptions{})
		}
		drain(t, e)
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("20 fibers with one lock took %v", took)
		}
	})
}

// Steps that return to busy workers do not delay the fibers of other groups until all of them have ended.
func TestBlockingIsFairToOtherGroups(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 2, Requests: 8}, func(t *testing.T, e *Engine) {
		n := 0
		var mu sync.Mutex
		slow := New("slow", Step("a", func(ctx context.Context, f *fib) Next {
			mu.Lock()
			n++
			busy := time.Duration(n) * 10 * time.Second
			mu.Unlock()
			Blocking(ctx, func() { time.Sleep(time.Second) })
			time.Sleep(busy)
			return f.Next()
		}))
		began := time.Now()
		for range 20 {
			start(t, e, slow, &packet{}, StartOptions{Group: "a"})
		}
		time.Sleep(2 * time.Second)
		h := start(t, e, New("quick", note("b")), &packet{}, StartOptions{Group: "b"})
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > time.Minute {
			t.Errorf("the other group got a worker after %v", waited)
		}
		drain(t, e)
	})
}

// A cancelled fiber in Blocking holds the gate of its key until its code has returned.
func TestBlockingHoldsTheGate(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		var running tally
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			running.enter()
			defer running.leave()
			Blocking(ctx, func() {
				<-ctx.Done()
				time.Sleep(time.Second) // the transport does not return at once
			})
			return f.Fail(context.Cause(ctx))
		}))
		first := start(t, e, fl, &packet{}, StartOptions{Key: "a/b"})
		synctest.Wait()
		second := start(t, e, New("g", note("b")), &packet{}, StartOptions{Key: "a/b"})
		began := time.Now()
		if err := second.Wait(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("the second fiber ended after %v: %v", time.Since(began), err)
		}
		if err := first.Wait(t.Context()); !errors.Is(err, ErrPreempted) {
			t.Errorf("the first fiber ended with %v", err)
		}
		late := start(t, e, fl, &packet{}, StartOptions{Key: "c", Timeout: time.Minute})
		if err := late.Wait(t.Context()); !errors.Is(err, ErrTimeout) {
			t.Errorf("a fiber with a timeout ended with %v", err)
		}
		drain(t, e)
	})
}

// The count of workers stays correct for any fn, and for any goroutine that calls Blocking.
func TestBlockingOfAnyShape(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]func(ctx context.Context, release chan struct{}){
		"a panic":  func(ctx context.Context, _ chan struct{}) { Blocking(ctx, func() { panic("in a request") }) },
		"a goexit": func(ctx context.Context, _ chan struct{}) { Blocking(ctx, runtime.Goexit) },
		"nested": func(ctx context.Context, _ chan struct{}) {
			Blocking(ctx, func() { Blocking(ctx, func() { time.Sleep(time.Second) }); time.Sleep(time.Second) })
		},
		"several goroutines": func(ctx context.Context, _ chan struct{}) {
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() { Blocking(ctx, func() { time.Sleep(time.Duration(i) * time.Second) }) })
			}
			wg.Wait()
		},
		"a goroutine that outlives the step": func(ctx context.Context, release chan struct{}) {
			go Blocking(ctx, func() { <-release })
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, EngineOptions{Workers: 2, Requests: 3}, func(t *testing.T, e *Engine) {
				release := make(chan struct{})
				fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
					shape(ctx, release)
					return f.Next()
				}))
				for i := range 20 {
					start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprint("k/", i), Reported: true})
				}
				drain(t, e)
				close(release)
				synctest.Wait()
				drain(t, e)
			})
		})
	}
}

// Fibers in Blocking are running, and do not block the engine, however long the response takes.
func TestBlockingIsVisible(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 2, Requests: 3}, func(t *testing.T, e *Engine) {
		release := make(chan struct{})
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			Blocking(ctx, func() { <-release })
			return f.Next()
		}))
		for range 3 {
			start(t, e, fl, &packet{}, StartOptions{})
		}
		time.Sleep(time.Hour)
		want := `
			# HELP fairlead_flow_fibers Live fibers by status.
			# TYPE fairlead_flow_fibers gauge
			fairlead_flow_fibers{status="parked"} 0
			fairlead_flow_fibers{status="ready"} 0
			fairlead_flow_fibers{status="running"} 3
			# HELP fairlead_flow_workers_busy Workers that run a fiber and do not wait for the answer to a request.
			# TYPE fairlead_flow_workers_busy gauge
			fairlead_flow_workers_busy 0
		`
		if err := testutil.CollectAndCompare(e.Collector(), strings.NewReader(want), "fairlead_flow_fibers",
			"fairlead_flow_workers_busy"); err != nil {
			t.Error(err)
		}
		if since, blocked := e.BlockedSince(); blocked {
			t.Errorf("the engine is blocked since %v", since)
		}
		for range 3 { // two of the five keep the workers, and the sixth is ready
			start(t, e, fl, &packet{}, StartOptions{})
		}
		time.Sleep(time.Hour)
		if at, behind := e.Blocked(); len(at) != 5 || len(behind) != 1 {
			t.Errorf("%d fibers are blocked, and %d behind them", len(at), len(behind))
		}
		close(release)
		drain(t, e)
	})
}

// Without the context of a step, Blocking only calls the function.
func TestBlockingOutsideOfAStep(t *testing.T) {
	t.Parallel()
	called := 0
	Blocking(t.Context(), func() { called++ })
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var kept context.Context
		h := start(t, e, New("f", Step("a", func(ctx context.Context, f *fib) Next {
			kept = ctx
			return f.Next()
		})), &packet{}, StartOptions{})
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		Blocking(kept, func() { called++ })
		drain(t, e)
	})
	if called != 2 {
		t.Errorf("the functions were called %d times", called)
	}
}
