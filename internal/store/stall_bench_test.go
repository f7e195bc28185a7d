//go:build unix

package store_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

const (
	stallPods    = 100_000
	stallBuckets = 100 // lists of about 1,000
	stallRate    = 5   // changes in a millisecond
)

// stalled is a cache under the load of BenchmarkLongestGet.
type stalled struct {
	get    func(k store.Key)
	list   func(bucket string)
	change func(i int, raw []byte)
}

// BenchmarkLongestGet measures how long Gets take while 5,000 changes a second arrive, whose objects a handler reads,
// and another reader lists all values of an index in turns, 50 times a second (S8).
func BenchmarkLongestGet(b *testing.B) {
	gen := corpus.NewPods(1, 300)
	raws := make([][]byte, stallPods)
	keys := make([]store.Key, stallPods)
	for i := range raws {
		pod := gen.Next(i)
		pod.ManagedFields, pod.ResourceVersion = nil, "1000000000"
		raws[i], _ = pod.Marshal()
		keys[i] = store.Key{Namespace: pod.Namespace, Name: pod.Name}
	}
	for _, peer := range []struct {
		name string
		make func(b *testing.B, raws [][]byte) stalled
	}{{"fairlead", stalledStore}, {"client-go", stalledIndexer}} {
		b.Run(peer.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				c := peer.make(b, raws)
				runtime.GC()
				b.StartTimer()
				c.measure(b, raws, keys)
			}
		})
	}
}

func (c *stalled) measure(b *testing.B, raws [][]byte, keys []store.Key) {
	const length = 5 * time.Second
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var took []time.Duration
	start := cpuTime()
	readers.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for n := 0; ; n++ {
			begin := time.Now()
			c.get(keys[rnd.IntN(100)])
			took = append(took, time.Since(begin))
			if n%100 == 99 {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond): // readers do other work, too
				}
			}
		}
	})
	readers.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				c.list(strconv.Itoa(i % stallBuckets))
			}
		}
	})
	tick := time.NewTicker(time.Millisecond)
	begin := time.Now()
	n := 0
	for time.Since(begin) < length {
		<-tick.C
		for due := int(time.Since(begin)/time.Millisecond) * stallRate; n < due; n++ {
			i := n * 7919 % len(raws)
			c.change(i, raws[i])
		}
	}
	tick.Stop()
	close(stop)
	readers.Wait()
	slices.Sort(took)
	late := len(took) - sortedAt(took, 2*time.Millisecond)
	b.ReportMetric(float64(took[len(took)*999/1000].Microseconds()), "get-p999-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "get-max-µs")
	b.ReportMetric(float64(late)/length.Seconds(), "over-2ms/s")
	b.ReportMetric(float64(cpuTime()-start)/float64(length), "cores")
	b.ReportMetric(0, "ns/op")
}

func sortedAt(took []time.Duration, limit time.Duration) int {
	at, _ := slices.BinarySearch(took, limit)
	return at
}

func bucketOf(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return strconv.Itoa(int(h.Sum32() % stallBuckets))
}

func stalledStore(b *testing.B, raws [][]byte) stalled {
	s := store.New(store.Options{Kind: podKind, Scheme: scheme.Scheme, Namespaced: true})
	sink := s.Sink("")
	if err := s.AddIndex("bucket", func(r *store.Record) ([]string, error) {
		return []string{bucketOf(r.Name())}, nil
	}); err != nil {
		b.Fatal(err)
	}
	r := sink.Replace()
	o := source.Object{Encoding: source.Protobuf}
	for _, raw := range raws {
		o.Raw = raw
		if err := source.Scan(o.Encoding, raw, &o.Header); err != nil {
			b.Fatal(err)
		}
		if err := r.Put(&o); err != nil {
			b.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: "1000000000"})
	s.Flush()
	wake := make(chan struct{}, 1)
	c := s.Subscribe(store.SubscribeOptions{From: store.FromNow, Wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	done := make(chan struct{})
	go func() {
		for {
			events := c.Take(256)
			for i := range events {
				if events[i].Object == nil {
					continue
				}
				if _, err := store.As[corev1.Pod](events[i].Object); err != nil {
					b.Error(err)
				}
			}
			if len(events) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-done:
				c.Close()
				s.Close()
				return
			}
		}
	}()
	b.Cleanup(func() { close(done) })
	v := store.Of[corev1.Pod](s)
	version := 1_000_000_000
	return stalled{
		get: func(k store.Key) { _, _ = v.Get(k) },
		list: func(bucket string) {
			n := 0
			for range v.Index("bucket", bucket) {
				n++
			}
			if n < stallPods/stallBuckets/2 {
				b.Error(n)
			}
		},
		change: func(_ int, raw []byte) {
			version++
			o := source.Object{Encoding: source.Protobuf, Raw: raw}
			if err := source.Scan(o.Encoding, raw, &o.Header); err != nil {
				b.Error(err)
			}
			copy(o.Header.ResourceVersion, strconv.Itoa(version))
			if err := sink.Apply(source.Modified, &o); err != nil {
				b.Error(err)
			}
		},
	}
}

func stalledIndexer(b *testing.B, raws [][]byte) stalled {
	x := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"bucket": func(o any) ([]string, error) {
		return []string{bucketOf(o.(*corev1.Pod).Name)}, nil
	}})
	change := func(_ int, raw []byte) {
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(raw); err != nil {
			b.Error(err)
		}
		_ = x.Update(pod)
	}
	for i, raw := range raws {
		change(i, raw)
	}
	return stalled{
		get:    func(k store.Key) { _, _, _ = x.GetByKey(fmt.Sprintf("%s/%s", k.Namespace, k.Name)) },
		list:   func(bucket string) { _, _ = x.ByIndex("bucket", bucket) },
		change: change,
	}
}
