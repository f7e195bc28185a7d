//go:build unix

package observe_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/observe"
)

// BenchmarkEvents is row S3 without the wire: the cost of one change of a pod. It starts with the scan and ends after a
// handler that reads the whole object or only the key.
func BenchmarkEvents(b *testing.B) {
	pods := corpus.NewPods(1, 300)
	const objects = 20_000
	for _, enc := range []source.Encoding{source.Protobuf, source.JSON} {
		raw := make([][]byte, objects)
		for i := range raw {
			if enc == source.JSON {
				raw[i] = pods.JSON(i, true)
				continue
			}
			var err error
			if raw[i], err = pods.Next(i).Marshal(); err != nil {
				b.Fatal(err)
			}
		}
		for _, whole := range []bool{true, false} {
			b.Run(fmt.Sprintf("%v/whole=%v", enc, whole), func(b *testing.B) {
				if enc == source.JSON {
					benchmarkEvents(b, enc, raw, func(e observe.Event[unstructured.Unstructured]) bool {
						return !whole || e.Object() != nil
					})
				} else {
					benchmarkEvents(b, enc, raw, func(e observe.Event[corev1.Pod]) bool { return !whole || e.Object() != nil })
				}
			})
		}
	}
}

func benchmarkEvents[T any, P observe.Object[T]](
	b *testing.B, enc source.Encoding, raw [][]byte, read func(observe.Event[T]) bool,
) {
	h := newHost(b, observe.RegistryOptions{}, apiserver.Options{Pipe: true})
	defer h.end()
	gate := apiserver.NewGate()
	h.server.On(apiserver.Match{}, apiserver.HoldRequest(gate)) // the server does not respond
	defer gate.Open()
	observe.Source[corev1.Pod](h, "pods")
	known := observe.Known[corev1.Pod](h, "pods")
	var handled atomic.Int64
	done := make(chan struct{}, 1)
	var until atomic.Int64
	observe.On[T, P](h, "pods", func(_ context.Context, e observe.Event[T]) error {
		if e.Type == observe.Modified && read(e) && handled.Add(1) == until.Load() {
			done <- struct{}{}
		}
		return nil
	})
	if err := h.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	sink := known.Store().Sink("")
	list := sink.Replace()
	var o source.Object
	scan := func(i int) {
		o.Raw, o.Encoding = raw[i], enc
		if err := source.Scan(enc, o.Raw, &o.Header); err != nil {
			b.Fatal(err)
		}
	}
	for i := range raw {
		scan(i)
		if err := list.Put(&o); err != nil {
			b.Fatal(err)
		}
	}
	list.Commit(source.Commit{Version: "900000000"})
	if err := h.WaitSynced(b.Context()); err != nil {
		b.Fatal(err)
	}
	known.Store().Flush()
	if n := known.Store().Len(); n != len(raw) {
		b.Fatalf("%d objects", n)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := benchCPU()
	var buf [16]byte
	b.ResetTimer()
	const lot = 256 // less than the log holds before it folds
	for n := 0; n < b.N; {
		more := min(lot, b.N-n)
		until.Store(int64(n + more))
		for range more {
			n++
			scan(n % len(raw))
			o.Header.ResourceVersion = strconv.AppendInt(buf[:0], int64(1_000_000_000+n), 10)
			if err := sink.Apply(source.Modified, &o); err != nil {
				b.Fatal(err)
			}
		}
		<-done
	}
	b.StopTimer()
	cpu := benchCPU() - start
	runtime.ReadMemStats(&after)
	n := float64(b.N)
	b.ReportMetric(float64(cpu)/n, "cpu-ns/event")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/event")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/event")
	b.ReportMetric(float64(after.NumGC-before.NumGC)/n*1e5, "GCs/100k-events")
}

// benchCPU returns the processor time of this process. Elapsed time depends on the other users of the machine.
func benchCPU() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
