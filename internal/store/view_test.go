package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// pods returns a store of pods in an encoding.
func pods(t testing.TB, enc source.Encoding, n int, opt store.Options) (*store.Store, []*corev1.Pod) {
	t.Helper()
	opt.Kind, opt.Scheme, opt.Namespaced = podKind, kruntime.NewScheme(), true
	if err := corev1.AddToScheme(opt.Scheme); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, opt)
	gen := corpus.NewPods(3, 5)
	r := s.Sink("").Replace()
	var out []*corev1.Pod
	for i := range n {
		p := gen.Next(i)
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update"}}
		if err := r.Put(encoded(t, enc, p)); err != nil {
			t.Fatal(err)
		}
		p.ManagedFields = nil
		p.SetGroupVersionKind(podKind) // items of a list lack it
		out = append(out, p)
	}
	r.Commit(source.Commit{Version: "900000000"})
	s.Flush()
	return s, out
}

// encoded returns a pod as a source delivers it.
func encoded(t testing.TB, enc source.Encoding, p *corev1.Pod) *source.Object {
	t.Helper()
	raw, err := json.Marshal(p)
	if enc == source.Protobuf {
		raw, err = p.Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &o.Header); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestViews(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		s, want := pods(t, enc, 40, store.Options{})
		for _, p := range want {
			k := store.Key{Namespace: p.Namespace, Name: p.Name}
			got, err := store.Of[corev1.Pod](s).Get(k)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := marshal(t, got), marshal(t, p); a != b {
				t.Fatalf("%v: typed: got %s, want %s", enc, a, b)
			}
			u, err := store.Unstructured(s).Get(k)
			if err != nil || u.GetName() != p.Name || u.GroupVersionKind() != podKind {
				t.Fatalf("%v: unstructured: %v, %v", enc, u, err)
			}
			if node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName"); node != p.Spec.NodeName {
				t.Errorf("%v: unstructured: node %q", enc, node)
			}
			m, err := store.Metadata(s).Get(k)
			if err != nil || m.Name != p.Name || m.UID != p.UID || len(m.Labels) != len(p.Labels) || m.ManagedFields != nil {
				t.Errorf("%v: metadata: %v, %v", enc, m, err)
			}
			r, _ := s.Get(k)
			if j, err := r.AppendJSON(nil); err != nil || !json.Valid(j) || !strings.Contains(string(j), p.Spec.NodeName) {
				t.Errorf("%v: JSON: %v", enc, err)
			}
			if own, ok := r.Controller(); !ok || own.UID != p.OwnerReferences[0].UID || r.UID() != p.UID ||
				r.Version() != p.ResourceVersion {
				t.Errorf("%v: header of %s", enc, k)
			}
		}
		if _, err := store.Of[corev1.Pod](s).Get(store.Key{Name: "none"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("error %v, want not found", err)
		}
	}
}

func marshal(t *testing.T, o any) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDecodedOnceWhileUsed(t *testing.T) {
	t.Parallel()
	for _, hot := range []int64{0, -1} {
		s, want := pods(t, source.JSON, 3, store.Options{HotBytes: hot})
		k := store.Key{Namespace: want[0].Namespace, Name: want[0].Name}
		v := store.Of[corev1.Pod](s)
		got := make([]*corev1.Pod, 8)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i], _ = v.Get(k) })
		}
		wg.Wait()
		for _, p := range got {
			if p != got[0] || p == nil {
				t.Fatalf("hot %d: readers at the same time got different objects", hot)
			}
		}
		runtime.GC()
		if p, _ := v.Get(k); p != got[0] {
			t.Errorf("hot %d: decoded again although it is in use", hot)
		}
		runtime.KeepAlive(got)
	}
}

func TestHotSetIsBounded(t *testing.T) {
	t.Parallel()
	s, want := pods(t, source.JSON, 300, store.Options{HotBytes: 300_000})
	v := store.Of[corev1.Pod](s)
	first := store.Key{Namespace: want[0].Namespace, Name: want[0].Name}
	for _, p := range want {
		for _, k := range []store.Key{first, {Namespace: p.Namespace, Name: p.Name}} {
			if _, err := v.Get(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, cost := store.Hot(s)
	if cost > 300_000 || entries == 0 {
		t.Errorf("the hot set has %d objects of %d bytes, the bound is 300000", entries, cost)
	}
	if !store.IsHot(s, first) {
		t.Error("the object that was read most is not in the hot set")
	}
}

func TestHotGetDoesNotAllocate(t *testing.T) {
	s, want := pods(t, source.JSON, 1, store.Options{})
	k := store.Key{Namespace: want[0].Namespace, Name: want[0].Name}
	v := store.Of[corev1.Pod](s)
	if _, err := v.Get(k); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = v.Get(k) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMutationIsDetected(t *testing.T) {
	t.Parallel()
	var found []store.Key
	s, want := pods(t, source.JSON, 1, store.Options{
		DetectMutation: true, OnMutation: func(k store.Key, err error) { found = append(found, k) },
	})
	k := store.Key{Namespace: want[0].Namespace, Name: want[0].Name}
	v := store.Of[corev1.Pod](s)
	p, err := v.Get(k)
	if err != nil {
		t.Fatal(err)
	}
	if _, _ = v.Get(k); len(found) != 0 {
		t.Fatal("a mutation is reported before there is one")
	}
	p.Labels["changed"] = "yes"
	_, _ = v.Get(k)
	_, _ = v.Get(k)
	if len(found) != 1 || found[0] != k || s.Mutations() != 1 {
		t.Errorf("reported %v, want the one change once", found)
	}
}

// TestMutationIsReportedOutsideOfLocks: the callback for a mutation runs without a lock, so it may read the store.
func TestMutationIsReportedOutsideOfLocks(t *testing.T) {
	t.Parallel()
	var s *store.Store
	var want []*corev1.Pod
	key := func(i int) store.Key { return store.Key{Namespace: want[i].Namespace, Name: want[i].Name} }
	calls := 0
	s, want = pods(t, source.JSON, 2, store.Options{
		HotBytes: 1, DetectMutation: true, OnMutation: func(k store.Key, _ error) {
			calls++
			if store.HotLocked(s) {
				t.Error("the hot set is locked: a read would deadlock")
				return
			}
			if _, err := store.Metadata(s).Get(key(1)); err != nil || k != key(0) {
				t.Errorf("key %s, error %v", k, err)
			}
		},
	})
	changed, err := store.Of[corev1.Pod](s).Get(key(0))
	if err != nil {
		t.Fatal(err)
	}
	changed.Labels["changed"] = "yes"
	// The hot set has room for one object: the other one is checked and evicted.
	if _, err := store.Of[corev1.Pod](s).Get(key(1)); err != nil {
		t.Fatal(err)
	}
	if calls != 1 || s.Mutations() != 1 {
		t.Errorf("called %d times, want once", calls)
	}
	runtime.KeepAlive(changed)
}

func TestUndecodableObject(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Kind: podKind})
	x := obj("a", "u1", 5)
	x.more = `,"spec":{"containers":"none"}`
	list(t, s.Sink(""), 9, x, obj("b", "u2", 6))
	v := store.Of[corev1.Pod](s)
	var bad *store.DecodeError
	if _, err := v.Get(x.key()); !errors.As(err, &bad) || bad.Key != x.key() {
		t.Errorf("error %v, want a decode error", err)
	}
	all, err := v.List(s.Snapshot().All())
	if len(all) != 1 || !errors.As(err, &bad) {
		t.Errorf("list of %d and %v, want the other object and the error", len(all), err)
	}
	if err := store.IndexBy(v, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Snapshot().IndexErrors("node")); n != 1 {
		t.Errorf("%d objects are missing from the index, want the one that cannot be decoded", n)
	}
	if err := store.IndexBy(v, "node", func(p *corev1.Pod) []string { return nil }); err == nil {
		t.Error("a second index of the same name")
	}
	if _, err := store.Unstructured(s).Get(x.key()); err != nil {
		t.Errorf("unstructured: %v", err)
	}
}

func TestProtobufNeedsItsType(t *testing.T) {
	t.Parallel()
	s, want := pods(t, source.Protobuf, 1, store.Options{})
	if _, err := store.Of[struct{ Name string }](s).Get(
		store.Key{Namespace: want[0].Namespace, Name: want[0].Name},
	); err == nil {
		t.Error("protobuf was read as a type that has none")
	}
}

// TestReadersAndWriters runs readers and writers at once, for the race detector. Each reader sees one version.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{HotBytes: 100_000})
	sink := s.Sink("")
	const n = 50
	all := func(version int) []thing {
		var out []thing
		for i := range n {
			x := obj(fmt.Sprint("k", i), fmt.Sprint("u", i), version+i)
			x.labels = fmt.Sprintf(`"round":"%d"`, version)
			x.more = `,"data":{"k":"` + strings.Repeat("v", 200) + `"}`
			out = append(out, x)
		}
		return out
	}
	list(t, sink, 100, all(10)...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			v := store.Of[corev1.ConfigMap](s)
			c := s.Subscribe(store.SubscribeOptions{})
			defer c.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				snap, rounds, count := s.Snapshot(), map[string]bool{}, 0
				for r := range snap.All() {
					round, _ := r.Label("round")
					rounds[round] = true
					count++
					if o, err := store.As[corev1.ConfigMap](r); err != nil || o.Labels["round"] != round {
						t.Errorf("%v: %v", o, err)
					}
				}
				if len(rounds) != 1 || count != n {
					t.Errorf("a snapshot shows %d objects of the lists %v", count, rounds)
				}
				c.Take(10)
				_, _ = v.Get(store.Key{Namespace: "ns", Name: "k1"})
			}
		})
	}
	for round := range 30 {
		list(t, sink, 1000*(round+2), all(1000*(round+1)+1)...)
		s.Flush()
	}
	close(stop)
	wg.Wait()
}

// A read as the Go type of another kind is an error. It would succeed with a nearly empty object.
func TestOtherKindIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Scheme: scheme.Scheme, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
	list(t, s.Sink(""), 9, obj("a", "u1", 5))
	r, ok := s.Get(store.Key{Namespace: "ns", Name: "a"})
	if !ok {
		t.Fatal("the object is not there")
	}
	_, err := store.As[corev1.Secret](r)
	var wrong *store.DecodeError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "the store holds objects of kind ConfigMap") {
		t.Errorf("read as a Secret: %v", err)
	}
	if _, err := store.As[corev1.ConfigMap](r); err != nil {
		t.Error(err)
	}
	if _, err := store.As[metav1.PartialObjectMetadata](r); err != nil {
		t.Error(err)
	}
	if _, err := store.As[struct{ Metadata metav1.ObjectMeta }](r); err != nil {
		t.Errorf("a type outside the Scheme: %v", err)
	}
}
