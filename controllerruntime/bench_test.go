//go:build unix

package controllerruntime

import (
	"fmt"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

const (
	benchPods    = 20_000
	benchVersion = "1000000000" // all later versions have the same length
	benchSize    = 200          // of a list by index
)

var resourceVersion = regexp.MustCompile(`"resourceVersion":"[0-9]+"`)

// benched is an informer over pods with their managedFields, each of which was decoded once.
type benched struct {
	*informer
	sink    source.Sink
	objects []source.Object
	keys    []string
	version int
}

func newBenched(b *testing.B, enc source.Encoding, example runtime.Object) *benched {
	b.Helper()
	s := store.New(store.Options{
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespaced: true,
		Content: store.Content{ManagedFields: true},
	})
	b.Cleanup(s.Close)
	x := &benched{sink: s.Sink(""), version: 1_000_000_000}
	pods := corpus.NewPods(1, 300)
	r := x.sink.Replace()
	for i := range benchPods {
		version := []byte(`"resourceVersion":"` + benchVersion + `"`)
		o := source.Object{Encoding: enc, Raw: resourceVersion.ReplaceAll(pods.JSON(i, true), version)}
		if enc == source.Protobuf {
			var pod corev1.Pod
			check(b, runtime.DefaultUnstructuredConverter.FromUnstructured(mustJSON(b, o.Raw), &pod))
			pod.ResourceVersion = benchVersion
			raw, err := pod.Marshal()
			check(b, err)
			o.Raw = raw
		}
		check(b, source.Scan(enc, o.Raw, &o.Header))
		x.objects = append(x.objects, o)
		x.keys = append(x.keys, fmt.Sprintf("%s/%s", o.Header.Namespace, o.Header.Name))
		check(b, r.Put(&o))
	}
	r.Commit(source.Commit{Version: benchVersion})
	s.Flush()
	bucket := func(obj any) ([]string, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		return []string{strconv.Itoa(len(m.GetUID()) + int(m.GetUID()[0]*7+m.GetUID()[1])%(benchPods/benchSize))}, nil
	}
	x.informer = newInformer(example, 0, cache.Indexers{"bucket": bucket}, "", nil)
	check(b, x.fill(s, x.indexes))
	x.from.Store(&origin{store: s})
	if n := len(indexer{x.informer}.List()); n != benchPods {
		b.Fatal(n)
	}
	return x
}

func mustJSON(b *testing.B, raw []byte) map[string]any {
	b.Helper()
	u := &unstructured.Unstructured{}
	check(b, u.UnmarshalJSON(raw))
	return u.Object
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// change delivers the next version of an object.
func (x *benched) change(b *testing.B, i int) {
	o := x.objects[i]
	x.version++
	copy(o.Header.ResourceVersion, strconv.Itoa(x.version)) // a part of o.Raw
	check(b, x.sink.Apply(source.Modified, &o))
}

// measured reports the processor time of an operation, since the machine may be shared.
func measured(b *testing.B) func() {
	b.ReportAllocs()
	b.ResetTimer()
	begin := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkEvents changes objects whose events go to a handler and an index as complete objects (S3).
func BenchmarkEvents(b *testing.B) {
	for _, c := range []struct {
		name    string
		enc     source.Encoding
		example runtime.Object
	}{
		{"typed", source.Protobuf, &corev1.Pod{}},
		{"unstructured", source.JSON, &unstructured.Unstructured{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := newBenched(b, c.enc, c.example)
			var seen atomic.Int64
			ready, last := make(chan struct{}), make(chan struct{}, 1)
			r := newRegistration(x.informer, cache.ResourceEventHandlerDetailedFuncs{
				UpdateFunc: func(_, obj any) {
					m, _ := meta.Accessor(obj)
					if n, _ := strconv.Atoi(m.GetResourceVersion()); int64(n) > seen.Load() {
						seen.Store(int64(n))
					}
					select {
					case last <- struct{}{}:
					default:
					}
				},
			}, klog.Background(), 0)
			r.follow(x.from.Load().store)
			go func() { <-r.synced; close(ready) }()
			<-ready
			defer measured(b)()
			i := 0
			for b.Loop() {
				x.change(b, i*31%len(x.objects))
				if i++; i%64 == 0 { // keep the handler close behind
					for seen.Load() < int64(x.version) {
						<-last
					}
				}
			}
			for seen.Load() < int64(x.version) {
				<-last
			}
			b.StopTimer()
			r.remove()
			<-r.over
		})
	}
}

// BenchmarkGet copies objects of the hot set, as the reader of controller-runtime does (S6), and reads objects in turns
// of all, which the hot set does not have.
func BenchmarkGet(b *testing.B) {
	x := newBenched(b, source.Protobuf, &corev1.Pod{})
	read := indexer{x.informer}
	for _, c := range []struct {
		name string
		copy bool
		keys []string
	}{{"copy", true, x.keys[:100]}, {"shared", false, x.keys[:100]}, {"cold", false, x.keys}} {
		b.Run(c.name, func(b *testing.B) {
			defer measured(b)()
			i, into := 0, &corev1.Pod{}
			for b.Loop() {
				obj, ok, err := read.GetByKey(c.keys[i%len(c.keys)])
				if err != nil || !ok {
					b.Fatal(ok, err)
				}
				if c.copy {
					obj = obj.(runtime.Object).DeepCopyObject()
				}
				*into = *obj.(*corev1.Pod)
				i++
			}
		})
	}
}

// BenchmarkList lists by an index without copies, as the reader of controller-runtime does (S6): one value again and
// again, from our indexer and from that of client-go. It reports quantiles of the processor time of the reader.
func BenchmarkList(b *testing.B) {
	x := newBenched(b, source.Protobuf, &corev1.Pod{})
	read := indexer{x.informer}
	values := read.ListIndexFuncValues("bucket")
	value, most := "", 0
	for _, v := range values {
		if keys, _ := read.IndexKeys("bucket", v); len(keys) > most && len(keys) <= benchSize*3/2 {
			value, most = v, len(keys)
		}
	}
	if most < benchSize/2 {
		b.Fatal(most)
	}
	index := func(b *testing.B, read cache.Indexer) []runtime.Object {
		objs, err := read.ByIndex("bucket", value)
		check(b, err)
		out := make([]runtime.Object, 0, len(objs))
		for _, obj := range objs {
			out = append(out, obj.(runtime.Object))
		}
		return out
	}
	for _, peer := range []struct {
		name string
		make func() cache.Indexer
	}{
		{"fairlead", func() cache.Indexer { return read }},
		{"client-go", func() cache.Indexer {
			stock := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"bucket": x.indexes["bucket"].fn})
			for _, obj := range read.List() {
				check(b, stock.Add(obj.(runtime.Object).DeepCopyObject()))
			}
			return stock
		}},
	} {
		b.Run(peer.name, func(b *testing.B) {
			read := peer.make()
			b.Run("index", func(b *testing.B) { quantiles(b, func() { index(b, read) }) })
			b.Run("list", func(b *testing.B) {
				quantiles(b, func() { check(b, meta.SetList(&corev1.PodList{}, index(b, read))) })
			})
		})
	}
}

// quantiles reports the median and the 99th percentile of the processor time of a call.
func quantiles(b *testing.B, call func()) {
	goruntime.LockOSThread()
	b.ReportAllocs()
	defer goruntime.UnlockOSThread()
	var took []time.Duration
	for b.Loop() {
		before := threadTime(b)
		call()
		took = append(took, threadTime(b)-before)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "cpu-p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "cpu-p99-ns")
}

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var at unix.Timespec
	check(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at))
	return time.Duration(at.Nano())
}
