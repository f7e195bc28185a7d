package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-io/fairlead/flow"
)

// parked starts n waiters of a kind. It returns the bytes per waiter and the microseconds per waiter until all wait.
func parked(what string, n int) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var waiting atomic.Int64
	packets := make([]int, n)
	keys := make([]string, n)
	for i := range n {
		keys[i] = fmt.Sprintf("namespace-%d/object-%d", i%100, i)
	}
	before := memory()
	began := time.Now()
	switch what {
	case "fiber", "await":
		e := flow.NewEngine(flow.EngineOptions{Workers: 8})
		defer e.Close(ctx)
		var signal flow.Signal
		line := flow.Do(func(context.Context, *int) error { return nil })
		park := func(_ context.Context, f *flow.Fiber[int]) flow.Next {
			waiting.Add(1)
			if what == "await" {
				return f.Await(&signal, flow.Timeout(time.Hour))
			}
			return f.Delay(time.Hour)
		}
		fl := flow.New("f", flow.Step("a", line), flow.Step("b", line), flow.Step("c", line), flow.Step("d", park),
			flow.Step("e", line))
		for i := range n {
			if _, err := fl.Start(ctx, e, &packets[i], flow.StartOptions{Key: keys[i]}); err != nil {
				return nil, err
			}
		}
	case "goroutine":
		for range n {
			wg.Go(func() {
				waiting.Add(1)
				<-ctx.Done()
			})
		}
	case "select":
		for range n {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				t := time.NewTimer(time.Hour)
				defer t.Stop()
				waiting.Add(1)
				select {
				case <-t.C:
				case <-ctx.Done():
				}
			})
		}
	case "requeue":
		wait, err := controller(ctx, 8, keys, func(context.Context, reconcile.Request) (reconcile.Result, error) {
			waiting.Add(1)
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		})
		if err != nil {
			return nil, err
		}
		wg.Go(wait)
	default:
		return nil, fmt.Errorf("cannot measure %q", what)
	}
	for waiting.Load() < int64(n) {
		runtime.Gosched()
	}
	took := time.Since(began)
	settle()
	bytes := float64(memory()) - float64(before)
	runtime.KeepAlive(packets)
	runtime.KeepAlive(keys)
	return []float64{bytes / float64(n), float64(took.Microseconds()) / float64(n)}, nil
}

// settle gives goroutines that have just announced a wait the time to block.
func settle() { <-time.After(300 * time.Millisecond) }

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
