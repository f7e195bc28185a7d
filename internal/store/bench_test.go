//go:build unix

package store_test

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// BenchmarkMemory prints the memory of a pod of many workloads, all overhead included (S2), without and with
// managedFields.
func BenchmarkMemory(b *testing.B) {
	b.Run("pruned", func(b *testing.B) { memory(b, store.Content{}) })
	b.Run("managedFields", func(b *testing.B) { memory(b, store.Content{ManagedFields: true}) })
}

func memory(b *testing.B, content store.Content) {
	const n = 50_000
	for b.Loop() {
		pods := corpus.NewPods(1, 300)
		var m0, m1 runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m0)
		s := store.New(store.Options{Namespaced: true, Content: content})
		r := s.Sink("").Replace()
		var o source.Object
		var size int
		for i := range n {
			o.Raw = pods.JSON(i, true)
			if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
				b.Fatal(err)
			}
			size += len(o.Raw)
			if !content.ManagedFields {
				size -= o.Header.ManagedFields.End - o.Header.ManagedFields.Start
			}
			if err := r.Put(&o); err != nil {
				b.Fatal(err)
			}
		}
		r.Commit(source.Commit{Version: "900000000"})
		s.Flush()
		runtime.GC()
		runtime.ReadMemStats(&m1)
		heap := float64(m1.HeapAlloc-m0.HeapAlloc) / n
		st := s.MemoryStats()
		b.ReportMetric(float64(size)/n, "json-B/obj")
		b.ReportMetric(heap, "heap-B/obj")
		b.ReportMetric(float64(st.Mapped)/n, "mapped-B/obj")
		b.ReportMetric(2*heap+float64(st.Mapped)/n, "resident-B/obj")
		b.ReportMetric(float64(m1.HeapObjects-m0.HeapObjects)/n, "objects/obj")
		s.Close()
		runtime.KeepAlive(s)
	}
}

// BenchmarkGet reads a decoded object from the hot set (S6).
func BenchmarkGet(b *testing.B) {
	s, keys := filled(b, 20_000)
	defer s.Close()
	v := store.Of[corev1.Pod](s)
	for _, k := range keys[:1000] {
		if _, err := v.Get(k); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	start := cpuTime()
	i := 0
	for b.Loop() {
		if _, err := v.Get(keys[i%1000]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkGetCold decodes the object in each read.
func BenchmarkGetCold(b *testing.B) {
	s, keys := filled(b, 20_000)
	defer s.Close()
	v := store.Of[corev1.Pod](s)
	b.ReportAllocs()
	start := cpuTime()
	i := 0
	for b.Loop() {
		if _, err := v.Get(keys[i%len(keys)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkListIndex lists the 333 pods of one workload by a label.
func BenchmarkListIndex(b *testing.B) {
	s, keys := filled(b, 20_000)
	defer s.Close()
	r, _ := s.Get(keys[0])
	instance, _ := r.Label("app.kubernetes.io/instance")
	v := store.Of[corev1.Pod](s)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		n := 0
		for range v.Index(store.IndexLabel, "app.kubernetes.io/instance="+instance) {
			n++
		}
		if n < 50 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkListBucket lists the 1,000 pods of one value of a user-defined index (S6).
func BenchmarkListBucket(b *testing.B) {
	s, _ := filled(b, 100_000)
	defer s.Close()
	if err := s.AddIndex("bucket", func(r *store.Record) ([]string, error) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(r.Name()))
		return []string{strconv.Itoa(int(h.Sum32() % 100))}, nil
	}); err != nil {
		b.Fatal(err)
	}
	v := store.Of[corev1.Pod](s)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		n := 0
		for range v.Index("bucket", "7") {
			n++
		}
		if n < 900 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkRelist lists 20,000 unchanged pods that the store has scanned before (S5).
func BenchmarkRelist(b *testing.B) {
	s, _ := filled(b, 20_000)
	defer s.Close()
	pods := corpus.NewPods(1, 300)
	objects := make([]source.Object, 20_000)
	for i := range objects {
		objects[i] = *object(pods.JSON(i, true))
	}
	b.ReportAllocs()
	n, start := 0, cpuTime()
	for b.Loop() {
		r := s.Sink("").Replace()
		for i := range objects {
			if err := r.Put(&objects[i]); err != nil {
				b.Fatal(err)
			}
		}
		r.Commit(source.Commit{Version: "900000000"})
		n += len(objects)
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(n), "cpu-ns/obj")
}

// cpuTime returns the processor time of this process. Elapsed time depends on the other users of the machine.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkApply scans and applies MODIFIED events of 10,000 objects, with one subscriber that reads only headers (S3).
func BenchmarkApply(b *testing.B) {
	pods := corpus.NewPods(1, 300)
	for name, raw := range map[string]func(i int) []byte{
		"pods":   func(i int) []byte { return pods.JSON(i, true) },
		"custom": custom,
	} {
		b.Run(name, func(b *testing.B) { benchmarkApply(b, raw) })
	}
}

// custom is a custom resource of about 1.2 KB.
func custom(i int) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"widget-%d","namespace":"team-%d","uid":"3c9d7c2e-8f5b-4e59-9a51-%012d","resourceVersion":"%d","generation":3,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{"app":"widget","size":"s-%d"},"finalizers":["example.com/cleanup"],"managedFields":[{"manager":"operator","operation":"Update","apiVersion":"example.com/v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:size":{},"f:region":{},"f:replicas":{},"f:template":{".":{},"f:image":{},"f:command":{}}}}}]},"spec":{"size":"large","region":"eu-%d","replicas":%d,"template":{"image":"registry.example.com/widgets/server:v1.%d.0","command":["serve","--port=8080","--verbose"]},"parameters":{"storage":"100Gi","class":"fast","window":"Sun 03:00"}},"status":{"phase":"Ready","observedGeneration":3,"endpoint":"widget-%d.example.com","conditions":[{"type":"Ready","status":"True","reason":"Running","message":"all replicas are up","lastTransitionTime":"2026-11-20T10:00:05Z"},{"type":"Synced","status":"True","reason":"Applied","message":"spec %d applied","lastTransitionTime":"2026-11-20T10:00:03Z"}]}}`,
		i, i%50, i, 1000+i, i%4, i%3, i%9, i%40, i, i)
}

func benchmarkApply(b *testing.B, raw func(i int) []byte) {
	s := store.New(store.Options{Namespaced: true})
	defer s.Close()
	objects := make([]*source.Object, 10_000)
	sink := s.Sink("")
	r := sink.Replace()
	for i := range objects {
		objects[i] = object(raw(i))
		if err := r.Put(objects[i]); err != nil {
			b.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: "900000000"})
	c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
	b.ReportAllocs()
	b.ResetTimer()
	start := cpuTime()
	version := 1_000_000_000
	var buf [16]byte
	var o source.Object
	i := 0
	for b.Loop() {
		version++
		o.Raw = objects[i%len(objects)].Raw
		if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
			b.Fatal(err)
		}
		o.Header.ResourceVersion = strconv.AppendInt(buf[:0], int64(version), 10)
		if err := sink.Apply(source.Modified, &o); err != nil {
			b.Fatal(err)
		}
		for len(c.Take(64)) > 0 {
		}
		i++
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkStalls applies 5,000 updates a second beside readers and measures the slowest update (S8).
func BenchmarkStalls(b *testing.B) {
	const objects, rate = 20_000, 5 // per millisecond
	for b.Loop() {
		s := store.New(store.Options{Namespaced: true})
		sink := s.Sink("")
		r := sink.Replace()
		raw := make([][]byte, objects)
		for i := range raw {
			raw[i] = custom(i)
			if err := r.Put(object(raw[i])); err != nil {
				b.Fatal(err)
			}
		}
		r.Commit(source.Commit{Version: "900000000"})
		c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
		var writes, reads []time.Duration
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				at := time.Now()
				_, _ = s.Get(store.Key{Namespace: fmt.Sprint("team-", i%50), Name: fmt.Sprint("widget-", i%objects)})
				reads = append(reads, time.Since(at))
				for len(c.Take(64)) > 0 {
				}
				time.Sleep(200 * time.Microsecond)
			}
		}()
		tick := time.NewTicker(time.Millisecond)
		for i := range 3000 * rate {
			if i%rate == 0 {
				<-tick.C
			}
			o := object(raw[i*7919%objects])
			o.Header.ResourceVersion = strconv.AppendInt(nil, int64(1_000_000_000+i), 10)
			at := time.Now()
			if err := sink.Apply(source.Modified, o); err != nil {
				b.Fatal(err)
			}
			writes = append(writes, time.Since(at))
		}
		tick.Stop()
		close(stop)
		<-done
		for name, took := range map[string][]time.Duration{"write": writes, "read": reads} {
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), name+"-p99-µs")
			b.ReportMetric(float64(took[len(took)*999/1000].Microseconds()), name+"-p999-µs")
		}
		s.Close()
	}
}

func filled(tb testing.TB, n int) (*store.Store, []store.Key) {
	pods := corpus.NewPods(1, 300)
	s := store.New(store.Options{Namespaced: true})
	r := s.Sink("").Replace()
	var keys []store.Key
	var o source.Object
	for i := range n {
		o.Raw = pods.JSON(i, true)
		if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
			tb.Fatal(err)
		}
		keys = append(keys, store.Key{Namespace: string(o.Header.Namespace), Name: string(o.Header.Name)})
		if err := r.Put(&o); err != nil {
			tb.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: "900000000"})
	return s, keys
}
