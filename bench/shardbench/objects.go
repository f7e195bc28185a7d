package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/shard"
)

// workloads is the number of pod templates. Pods of one template are similar and share a namespace.
const workloads = 300

// The number of an object determines all its content, so a replica can compute the UID from the name.

func nameOf(i int) string { return fmt.Sprintf("object-%07d", i) }

// numberOf is the inverse of nameOf.
func numberOf(name string) (i int, err error) {
	_, err = fmt.Sscanf(name, "object-%d", &i)
	return i, err
}

// namespaces are where the objects are. Object i is in the one of number i modulo Count.
type namespaces struct {
	Count int
	Names string // format with a number
}

func (n namespaces) of(i int) string { return fmt.Sprintf(n.Names, i%n.Count) }

// uidOf returns a UID that looks random.
func uidOf(i int) types.UID {
	rnd := rand.NewPCG(uint64(i), 42)
	a, b := rnd.Uint64(), rnd.Uint64()
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0xfff, b&(1<<48-1)))
}

// units are the parts of the objects that move as a whole, even if the boundaries of slots change. They are
// namespaces, or, if objects are divided by uid, as many equal ranges of hashes as there are slots. In that case the
// objects are too evenly divided for other boundaries.
type units struct {
	layout     shard.Layout // of equal ranges
	namespaces namespaces
}

func (u units) len() int {
	if u.layout.By == shard.Namespace {
		return u.namespaces.Count
	}
	return u.layout.Len()
}

// of returns the unit of object i.
func (u units) of(i int) int {
	if u.layout.By == shard.Namespace {
		return i % u.namespaces.Count
	}
	return u.layout.SlotOf("", uidOf(i))
}

// slot returns the slot that contains a unit, by the present boundaries.
func (u units) slot(unit int, now shard.Layout) int {
	if u.layout.By == shard.Namespace {
		return now.SlotOf(u.namespaces.of(unit), "")
	}
	return unit
}

// counts returns the number of objects of each unit.
func (u units) counts(objects int) []int {
	counts := make([]int, u.len())
	for i := range objects {
		counts[u.of(i)]++
	}
	return counts
}

// maker creates objects in sequence.
type maker struct {
	o    options
	pods *corpus.Pods
	rnd  *rand.Rand
}

func newMaker(o options) *maker {
	return &maker{o: o, pods: corpus.NewPods(1, workloads), rnd: rand.New(rand.NewPCG(1, 2))}
}

// object returns the i-th object: a realistic pod without managedFields, or a ConfigMap of 200 bytes.
func (m *maker) object(i int) runtime.Object {
	meta := metav1.ObjectMeta{
		Namespace: m.o.namespaces.of(i), Name: nameOf(i), UID: uidOf(i),
		CreationTimestamp: metav1.NewTime(time.Unix(1_790_000_000+int64(i), 0)),
	}
	if m.o.kind == "configmaps" {
		meta.Labels = map[string]string{"app": fmt.Sprint("app-", i%workloads)}
		return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{
			"endpoint": fmt.Sprintf("https://%x.example.com/%x", m.rnd.Uint64(), m.rnd.Uint64()),
			"level":    fmt.Sprint(m.rnd.IntN(5)), "checksum": fmt.Sprintf("%016x%016x", m.rnd.Uint64(), m.rnd.Uint64()),
		}}
	}
	pod := m.pods.Next(i)
	meta.Labels, meta.Annotations, meta.OwnerReferences = pod.Labels, pod.Annotations, pod.OwnerReferences
	meta.GenerateName = pod.GenerateName
	pod.ObjectMeta = meta
	return pod
}

// batchSize is the number of objects in one transaction, which get the same version. An etcd transaction has at most
// 128 writes.
const batchSize = 64

// fill writes all objects and their namespaces in the storage format of kube-apiserver.
func fill(ctx context.Context, o options, db *etcd) error {
	codec := scheme.Codecs.EncoderForVersion(
		protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan []pair, 16)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for batch := range todo {
				if err := db.put(ctx, batch); err != nil {
					cancel(err)
				}
			}
		})
	}
	var batch []pair
	put := func(key string, object runtime.Object) {
		value, err := runtime.Encode(codec, object)
		if err != nil {
			cancel(err)
			return
		}
		if batch = append(batch, pair{[]byte(key), value}); len(batch) == batchSize {
			todo <- batch
			batch = nil
		}
	}
	for i := range min(o.namespaces.Count, o.objects) {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: o.namespaces.of(i), UID: uidOf(-1 - i),
				CreationTimestamp: metav1.NewTime(time.Unix(1_790_000_000, 0)),
			},
			Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		put("/registry/namespaces/"+ns.Name, ns)
	}
	m := newMaker(o)
	for i := 0; i < o.objects && ctx.Err() == nil; i++ {
		put(prefixOf(o.kind)+o.namespaces.of(i)+"/"+nameOf(i), m.object(i))
	}
	todo <- batch
	close(todo)
	writers.Wait()
	return context.Cause(ctx)
}

// prefixOf returns the prefix of the etcd keys of a kind.
func prefixOf(kind string) string { return "/registry/" + kind + "/" }
