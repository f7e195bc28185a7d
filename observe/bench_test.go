package observe_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/observe"
)

// widgetJSON returns a widget of about 1.2 KB.
func widgetJSON(name string, version int) []byte {
	raw := make([]byte, 0, 1200)
	raw = append(raw, `{"kind":"Widget","apiVersion":"example.fairlead.io/v1","metadata":{"name":"`...)
	raw = append(raw, name...)
	raw = append(raw, `","namespace":"default","uid":"`...)
	raw = append(raw, name...)
	raw = append(raw, `","resourceVersion":"`...)
	raw = strconv.AppendInt(raw, int64(version), 10)
	raw = append(raw, `","labels":{"app":"web"},"annotations":{"note":"`...)
	raw = append(raw, words[:1110-len(raw)]...)
	return append(raw, `"}},"spec":{"colour":"red"}}`...)
}

var words = strings.Repeat("words without much meaning ", 50)

// benchHost returns a host whose store the benchmark writes to, as a source does with an event.
func benchHost(b *testing.B, declare func(h *host)) (h *host, write func(name string, version int)) {
	b.Helper()
	h = newHost(b, observe.RegistryOptions{}, apiserver.Options{Pipe: true})
	b.Cleanup(h.end)
	gate := apiserver.NewGate()
	h.server.On(apiserver.Match{}, apiserver.HoldRequest(gate)) // the server does not respond
	b.Cleanup(gate.Open)
	observe.Source[Plain](h, "widgets")
	known := observe.Known[Plain](h, "widgets")
	declare(h)
	if err := h.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	sink := known.Store().Sink("")
	sink.Replace().Commit(source.Commit{Version: "1"})
	if err := h.WaitSynced(b.Context()); err != nil {
		b.Fatal(err)
	}
	var o source.Object
	return h, func(name string, version int) {
		o.Raw, o.Encoding = widgetJSON(name, version), source.JSON
		if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
			b.Fatal(err)
		}
		if err := sink.Apply(source.Modified, &o); err != nil {
			b.Fatal(err)
		}
		r, _ := known.Store().Get(cache.Key{Namespace: "default", Name: name})
		if _, err := store.As[Plain](r); err != nil { // decoded once, as for any number of observers, and not measured
			b.Fatal(err)
		}
	}
}

// Plain is a widget whose content no handler reads. Its decoding is trivial, since a real one would dominate the
// measurement.
type Plain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec `json:"spec"`
}

func (*Plain) UnmarshalJSON([]byte) error { return nil }

// BenchmarkDelivery is row O2: the cost of one event for each sync observer. It starts at the log of the store and ends
// after the handler. The objects are stored and decoded before. With N observers it is the cost of the Nth.
func BenchmarkDelivery(b *testing.B) {
	for _, observers := range []int{1, 100} {
		b.Run(fmt.Sprintf("observers=%d", observers), func(b *testing.B) {
			var handled atomic.Int64
			var done sync.WaitGroup
			gates := make([]chan struct{}, observers)
			_, write := benchHost(b, func(h *host) {
				for i := range observers {
					gates[i] = make(chan struct{})
					observe.On(h, "widgets", func(_ context.Context, e observe.Event[Plain]) error {
						switch {
						case e.Object() == nil:
						case e.Key.Name == "gate":
							<-gates[i]
						case e.Key.Name == "end":
							done.Done()
						default:
							handled.Add(1)
						}
						return nil
					})
				}
			})
			const batch = 512 // less than the log holds before it folds
			var names [64]string
			for i := range names {
				names[i] = fmt.Sprint("w", i)
			}
			b.ReportAllocs()
			b.StopTimer() // runs only while events are delivered
			b.ResetTimer()
			version := 10
			var before, after runtime.MemStats
			var allocs uint64
			for left := b.N; left > 0; left -= batch {
				version++
				write("gate", version)
				n := min(left, batch)
				for range n {
					version++
					write(names[version%len(names)], version)
				}
				version++
				write("end", version)
				done.Add(observers)
				runtime.ReadMemStats(&before)
				b.StartTimer()
				for i := range gates {
					gates[i] <- struct{}{}
				}
				done.Wait()
				b.StopTimer()
				runtime.ReadMemStats(&after)
				allocs += after.Mallocs - before.Mallocs
			}
			calls := float64(b.N) * float64(observers)
			if handled.Load() != int64(calls) {
				b.Errorf("%d events were handled of %.0f", handled.Load(), calls)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/calls, "ns/event·observer")
			b.ReportMetric(float64(allocs)/calls, "allocs/event·observer")
		})
	}
}

// BenchmarkIdleObservers is row O1: the memory of an observer without pending events.
func BenchmarkIdleObservers(b *testing.B) {
	for _, tc := range []struct {
		name string
		opts []observe.Option
	}{{"sync", nil}, {"async", []observe.Option{observe.Async(4)}}} {
		b.Run(tc.name, func(b *testing.B) {
			const observers = 10_000
			for b.Loop() {
				var before, after runtime.MemStats
				h, write := benchHost(b, func(*host) {})
				goroutines := runtime.NumGoroutine()
				settle(&before)
				var handled sync.WaitGroup
				handled.Add(observers)
				for range observers {
					observe.On(h, "widgets", func(_ context.Context, e observe.Event[Plain]) error {
						if e.Key.Name == "last" {
							handled.Done()
						}
						return nil
					}, tc.opts...)
				}
				for i := range 10 {
					write("x", 10+i)
				}
				write("last", 20)
				handled.Wait()
				if err := h.WaitSynced(b.Context()); err != nil {
					b.Fatal(err)
				}
				for runtime.NumGoroutine() > goroutines+observers/100 {
					runtime.Gosched()
				}
				settle(&after)
				b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/observers, "B/observer")
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/observers, "goroutines/observer")
				runtime.KeepAlive(h)
			}
		})
	}
}

// settle reads the memory in use after pooled memory and the stacks of ended goroutines are freed.
func settle(m *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(m)
}
