package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/flow"
)

// rowF2 measures the transition from one step to the next.
func rowF2(s sizes, out io.Writer) ([]rounds.Result, error) {
	n := s.steps
	results, err := rounds.Run(s.rounds,
		perStep("fiber: Next", n, func(n int) error { return fiberSteps(n, (*flow.Fiber[int]).Next) }),
		perStep("fiber: Yield (a turn of the scheduler)", n,
			func(n int) error { return fiberSteps(n, (*flow.Fiber[int]).Yield) }),
		perStep("goroutine: woken through a channel", n, func(n int) error { channelSteps(n); return nil }),
		perStep("controller-runtime: Reconcile, queued again", n/10, requeueSteps),
	)
	if err != nil {
		return nil, err
	}
	rounds.Print(out, "F2: dispatch of one step, in memory, tracing off", []string{"ns", "allocations"}, results)
	return results, nil
}

func perStep(name string, n int, run func(n int) error) rounds.Peer {
	return rounds.Peer{Name: name, Run: func() ([]float64, error) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		if err := run(n); err != nil {
			return nil, err
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		// Truncate, so that the setup of a run does not count as allocations of a step.
		return []float64{
			float64(took.Nanoseconds()) / float64(n),
			float64(int(10*float64(after.Mallocs-before.Mallocs)/float64(n))) / 10,
		}, nil
	}}
}

func fiberSteps(n int, next func(*flow.Fiber[int]) flow.Next) error {
	e := flow.NewEngine(flow.EngineOptions{Workers: 1})
	defer e.Close(context.Background())
	line := func(_ context.Context, f *flow.Fiber[int]) flow.Next {
		if *f.Packet--; *f.Packet <= 0 {
			return f.End()
		}
		return next(f)
	}
	fl := flow.New("f", flow.Step("a", line), flow.Step("b", line),
		flow.Step("c", func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
			if *f.Packet--; *f.Packet <= 0 {
				return f.End()
			}
			return f.Goto("a")
		}))
	h, err := fl.Start(context.Background(), e, &n, flow.StartOptions{})
	if err != nil {
		return err
	}
	return h.Wait(context.Background())
}

func channelSteps(n int) {
	c, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		for range c {
		}
	}()
	for i := range n {
		c <- i
	}
	close(c)
	<-done
}

func requeueSteps(n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	wait, err := controller(ctx, 1, []string{"namespace/object"},
		func(context.Context, reconcile.Request) (reconcile.Result, error) {
			if left.Add(-1) <= 0 {
				cancel()
				return reconcile.Result{}, nil
			}
			return reconcile.Result{RequeueAfter: 1}, nil // the shortest delay
		})
	if err != nil {
		return err
	}
	wait()
	return nil
}

// rowF3 measures the time from the start of a successor until its code runs. The predecessor is in a step that
// returns when its context ends.
func rowF3(s sizes, out io.Writer) ([]rounds.Result, error) {
	units := func(took []time.Duration) []float64 {
		return []float64{micros(rounds.Quantile(took, 0.5)), micros(rounds.Quantile(took, 0.99))}
	}
	results, err := rounds.Run(s.rounds,
		rounds.Peer{Name: "fiber: Start with Preempt", Run: func() ([]float64, error) {
			took, err := preemptFibers(s.preemptions)
			if err != nil {
				return nil, err
			}
			return units(took), nil
		}},
		rounds.Peer{Name: "goroutine: cancel, wait for its end, start", Run: func() ([]float64, error) {
			return units(preemptGoroutines(s.preemptions)), nil
		}},
	)
	if err != nil {
		return nil, err
	}
	rounds.Print(out,
		fmt.Sprintf(
			"F3: preemption of a cooperative step (%d; controller-runtime has none: an event waits for the end of Reconcile)",
			s.preemptions,
		),
		[]string{"p50 µs", "p99 µs"}, results)
	return results, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func preemptFibers(n int) ([]time.Duration, error) {
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.Background())
	running := make(chan struct{})
	fl := flow.New("f", flow.Step("a", func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
		running <- struct{}{}
		<-ctx.Done()
		return f.Next()
	}))
	took := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		if _, err := fl.Start(context.Background(), e, new(int), flow.StartOptions{Key: "namespace/object"}); err != nil {
			return nil, err
		}
		<-running
		took = append(took, time.Since(began))
	}
	return took, nil
}

func preemptGoroutines(n int) []time.Duration {
	var wg sync.WaitGroup
	running := make(chan struct{})
	stop := func() {}
	took := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		stop()
		wg.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		stop = cancel
		wg.Go(func() {
			running <- struct{}{}
			<-ctx.Done()
		})
		<-running
		took = append(took, time.Since(began))
	}
	stop()
	wg.Wait()
	return took
}
