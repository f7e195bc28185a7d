package flow

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// parkedBytes returns the bytes of a parked fiber out of n, beyond its packet. Each has a timer, a gate entry, its own
// key and a trail.
func parkedBytes(tb testing.TB, n int) float64 {
	e := NewEngine(EngineOptions{Workers: 8})
	defer e.Close(context.Background())
	fl := New("f", Step("a", stay), Step("b", stay), Step("c", stay),
		Step("d", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) }), Step("e", stay))
	packets := make([]packet, n)
	before := memory()
	for i := range n {
		if _, err := fl.Start(context.Background(), e, &packets[i],
			StartOptions{Key: fmt.Sprintf("namespace-%d/object-%d", i%100, i)}); err != nil {
			tb.Fatal(err)
		}
	}
	for {
		e.mu.Lock()
		parked := len(e.sched.timers.heap)
		e.mu.Unlock()
		if parked == n {
			break
		}
		runtime.Gosched()
	}
	after := memory()
	runtime.KeepAlive(packets)
	return float64(after-before) / float64(n)
}

func TestAParkedFiberTakesLessThan500Bytes(t *testing.T) {
	if got := parkedBytes(t, 20_000); got >= 500 {
		t.Errorf("%.0f bytes", got)
	} else {
		t.Logf("%.0f bytes", got)
	}
}

func TestAParkedFiberHoldsNoGoroutine(t *testing.T) {
	const workers = 4
	e := NewEngine(EngineOptions{Workers: workers})
	defer e.Close(context.Background())
	before := runtime.NumGoroutine()
	fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
		switch f.Packet.n % 3 {
		case 0:
			return f.Delay(time.Hour)
		case 1:
			return f.Await(&Signal{}, Timeout(time.Hour))
		}
		return f.Suspend(f.Token())
	}))
	for i := range 3000 {
		if _, err := fl.Start(context.Background(), e, &packet{n: i}, StartOptions{Key: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for parked := 0; parked < 3000; {
		parked = 0
		for i := range e.Fibers() {
			if i.Status == Parked {
				parked++
			}
		}
	}
	if got := runtime.NumGoroutine() - before; got > workers {
		t.Errorf("3000 parked fibers hold %d goroutines", got)
	}
}

// BenchmarkParked reports the memory of a parked fiber (row F1).
func BenchmarkParked(b *testing.B) {
	var bytes float64
	for b.Loop() {
		bytes = parkedBytes(b, 200_000)
	}
	b.ReportMetric(bytes, "B/fiber")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStep measures the dispatch from one step to the next (row F2).
func BenchmarkStep(b *testing.B) { benchmarkSteps(b, EngineOptions{Workers: 1}) }

// BenchmarkStepTraced measures the same with a span for each step.
func BenchmarkStepTraced(b *testing.B) {
	benchmarkSteps(b, EngineOptions{Workers: 1, Tracer: sdktrace.NewTracerProvider().Tracer("bench")})
}

// BenchmarkStepLabelled measures the same with pprof labels.
func BenchmarkStepLabelled(b *testing.B) { benchmarkSteps(b, EngineOptions{Workers: 1, Labels: true}) }

func benchmarkSteps(b *testing.B, opt EngineOptions) {
	e := NewEngine(opt)
	defer e.Close(context.Background())
	left := b.N
	line := func(ctx context.Context, f *fib) Next {
		if left--; left > 0 {
			return f.Next()
		}
		return f.End()
	}
	fl := New("f", Step("a", line), Step("b", line), Step("c", line), Step("d", func(ctx context.Context, f *fib) Next {
		if left--; left > 0 {
			return f.Goto("a")
		}
		return f.End()
	}))
	b.ReportAllocs()
	b.ResetTimer()
	h, err := fl.Start(context.Background(), e, &packet{}, StartOptions{})
	if err != nil {
		b.Fatal(err)
	}
	h.Wait(context.Background())
}

// BenchmarkYield measures a step and a turn of the scheduler.
func BenchmarkYield(b *testing.B) {
	e := NewEngine(EngineOptions{Workers: 1})
	defer e.Close(context.Background())
	left := b.N
	fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
		if left--; left > 0 {
			return f.Yield().Then("a")
		}
		return f.End()
	}))
	b.ReportAllocs()
	b.ResetTimer()
	h, err := fl.Start(context.Background(), e, &packet{}, StartOptions{})
	if err != nil {
		b.Fatal(err)
	}
	h.Wait(context.Background())
}

// BenchmarkFiber measures the whole life of a fiber of one step with a key.
func BenchmarkFiber(b *testing.B) {
	e := NewEngine(EngineOptions{Workers: 2})
	defer e.Close(context.Background())
	fl := New("f", Step("a", stay))
	p := &packet{}
	b.ReportAllocs()
	for b.Loop() {
		h, err := fl.Start(context.Background(), e, p, StartOptions{Key: "ns/name"})
		if err != nil {
			b.Fatal(err)
		}
		h.Wait(context.Background())
	}
}

// BenchmarkRestart measures a restart with 10,000 saved fibers until all are armed (row F4).
func BenchmarkRestart(b *testing.B) {
	const n = 10_000
	var store Memory
	fl := New("f", Step("a", stay), Step("b", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) }),
		Step("c", stay))
	run := func() {
		e := NewEngine(EngineOptions{})
		b.StartTimer()
		for i := range n {
			if _, err := fl.Start(context.Background(), e, &packet{},
				StartOptions{Key: fmt.Sprintf("ns-%d/object-%d", i%50, i), Positions: &store}); err != nil {
				b.Fatal(err)
			}
		}
		for armed := 0; armed < n; runtime.Gosched() {
			e.mu.Lock()
			armed = len(e.sched.timers.heap)
			e.mu.Unlock()
		}
		b.StopTimer()
		e.Close(context.Background())
	}
	b.StopTimer()
	run() // saves them
	b.ResetTimer()
	for range b.N {
		run()
	}
}

// BenchmarkPreempt measures the time from the start of a successor until it runs. The predecessor is in a step that
// obeys its context (row F3).
func BenchmarkPreempt(b *testing.B) {
	e := NewEngine(EngineOptions{})
	defer e.Close(context.Background())
	running := make(chan struct{})
	fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
		running <- struct{}{}
		<-ctx.Done()
		return f.Next()
	}))
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := fl.Start(context.Background(), e, &packet{}, StartOptions{Key: "ns/name"}); err != nil {
			b.Fatal(err)
		}
		<-running
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
