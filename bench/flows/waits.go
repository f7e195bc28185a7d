package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/flow"
)

const (
	pollEvery = time.Second // poll interval of the reconcile-and-requeue loop
	reactions = 100         // number of conditions that become true at the end
)

// rowWaits measures the CPU time of waiting for a condition, and the time from its change until the waiting code
// runs.
func rowWaits(s sizes, out io.Writer) ([]rounds.Result, error) {
	results, err := rounds.Run(s.rounds,
		rounds.Peer{Name: "fiber: Await", Run: func() ([]float64, error) { return awaitFibers(s.waits, s.watched) }},
		rounds.Peer{Name: "goroutine in select", Run: func() ([]float64, error) {
			return awaitGoroutines(s.waits, s.watched)
		}},
		rounds.Peer{Name: "controller-runtime: look and RequeueAfter 1 s", Run: func() ([]float64, error) {
			return awaitRequeues(s.waits, s.watched)
		}},
	)
	if err != nil {
		return nil, err
	}
	rounds.Print(out, fmt.Sprintf("Waiting for a condition, %d at a time", s.waits),
		[]string{"CPU ms per second of 1,000 waits", "µs until the code goes on, p50", "p99"}, results)
	return results, nil
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for the own process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure measures the CPU load of n waiters for a while, and then the reaction times. It is called when all of them
// wait. fulfil makes the condition of waiter i true, and the waiter sends its reaction time.
func measure(n int, watched time.Duration, fulfil func(i int), reacted <-chan time.Duration) []float64 {
	runtime.GC()
	began, used := time.Now(), cpu()
	<-time.After(watched)
	load := float64((cpu() - used).Microseconds()) / 1000 / time.Since(began).Seconds() / (float64(n) / 1000)
	count := min(n, reactions)
	took := make([]time.Duration, 0, count)
	for i := range count {
		fulfil(i)
	}
	for range count {
		took = append(took, <-reacted)
	}
	return []float64{load, micros(rounds.Quantile(took, 0.5)), micros(rounds.Quantile(took, 0.99))}
}

// condition is the condition that a waiter waits for.
type condition struct {
	signal flow.Signal
	chosen chan struct{}
	at     atomic.Int64 // Unix nanoseconds when it became true; 0 before
	seen   atomic.Bool
}

func (c *condition) fulfil() {
	c.at.Store(time.Now().UnixNano())
	c.signal.Set()
	close(c.chosen)
}

func (c *condition) age() time.Duration { return time.Duration(time.Now().UnixNano() - c.at.Load()) }

func newConditions(n int) []*condition {
	all := make([]*condition, n)
	for i := range all {
		all[i] = &condition{chosen: make(chan struct{})}
	}
	return all
}

func awaitFibers(n int, watched time.Duration) ([]float64, error) {
	ctx := context.Background()
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(ctx)
	reacted := make(chan time.Duration, n)
	var parked atomic.Int64
	fl := flow.New("f",
		flow.Step("wait", func(_ context.Context, f *flow.Fiber[condition]) flow.Next {
			parked.Add(1)
			return f.Await(&f.Packet.signal, flow.Timeout(time.Hour))
		}),
		flow.Step("go-on", flow.Do(func(_ context.Context, c *condition) error {
			reacted <- c.age()
			return nil
		})))
	all := newConditions(n)
	for i, c := range all {
		if _, err := fl.Start(ctx, e, c, flow.StartOptions{Key: fmt.Sprintf("namespace-%d/object-%d", i%50, i)}); err != nil {
			return nil, err
		}
	}
	for parked.Load() < int64(n) {
		runtime.Gosched()
	}
	return measure(n, watched, func(i int) { all[i].fulfil() }, reacted), nil
}

func awaitGoroutines(n int, watched time.Duration) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	reacted := make(chan time.Duration, n)
	all := newConditions(n)
	for _, c := range all {
		wg.Go(func() {
			t := time.NewTimer(time.Hour)
			defer t.Stop()
			select {
			case <-c.chosen:
				reacted <- c.age()
			case <-t.C:
			case <-ctx.Done():
			}
		})
	}
	return measure(n, watched, func(i int) { all[i].fulfil() }, reacted), nil
}

func awaitRequeues(n int, watched time.Duration) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reacted := make(chan time.Duration, n)
	all := newConditions(n)
	keys := make([]string, n)
	of := map[string]*condition{}
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace-%d/object-%d", i%50, i)
		of[keys[i]] = all[i]
	}
	var looked atomic.Int64
	wait, err := controller(ctx, 8, keys, func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
		looked.Add(1)
		c := of[r.Namespace+"/"+r.Name]
		if c.at.Load() != 0 {
			if c.seen.CompareAndSwap(false, true) {
				reacted <- c.age()
			}
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: pollEvery}, nil
	})
	if err != nil {
		return nil, err
	}
	for looked.Load() < int64(n) {
		runtime.Gosched()
	}
	values := measure(n, watched, func(i int) { all[i].fulfil() }, reacted)
	cancel()
	wait()
	return values, nil
}
