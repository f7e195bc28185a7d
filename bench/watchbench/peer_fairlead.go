package main

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// fairlead is a source and a store. Built-in types are read as their Go type, custom ones as unstructured.
type fairlead struct {
	protobuf bool
	typed    bool
	header   atomic.Bool
	store    *store.Store
	cancel   context.CancelFunc
	done     chan error
	read     chan struct{}
}

func newFairlead(protobuf bool) *fairlead {
	return &fairlead{protobuf: protobuf, done: make(chan error, 1)}
}

func (f *fairlead) start(ctx context.Context, t target, handler func(event)) error {
	gvr, kind := podsResource, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	if f.typed = t.corpus == "pods" && f.protobuf; t.corpus == "widgets" {
		gvr, kind = widgetsResource, widgetKind
	}
	f.store = store.New(store.Options{Resource: gvr, Kind: kind, Namespaced: true, Scheme: scheme.Scheme})
	if err := f.store.AddIndex("bucket", func(r *store.Record) ([]string, error) { return []string{bucketOf(r.Name())}, nil }); err != nil {
		return err
	}
	cfg := source.Config{REST: t.cfg, Resource: gvr, NoWatchList: t.list}
	if f.protobuf {
		cfg.Encoding = source.Protobuf
	}
	src, err := source.New(cfg, f.store.Sink)
	if err != nil {
		return err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.subscribe(ctx, handler)
	go func() { f.done <- src.Run(ctx) }()
	select {
	case <-f.store.Synced():
		return nil
	case err := <-f.done:
		return err
	}
}

// subscribe handles changes from the beginning of the watch on. What is there at first is read by readAll, which is measured apart.
func (f *fairlead) subscribe(ctx context.Context, handler func(event)) {
	wake := make(chan struct{}, 1)
	c := f.store.Subscribe(store.SubscribeOptions{Name: "bench", From: store.FromNow, Wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	f.read = make(chan struct{})
	go func() {
		defer close(f.read)
		defer c.Close()
		for {
			events := c.Take(256)
			for i := range events {
				f.handle(&events[i], handler)
			}
			if len(events) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}()
}

func (f *fairlead) handle(e *store.Event, handler func(event)) {
	if e.Object == nil {
		return
	}
	if !e.Initial && !f.header.Load() {
		f.readObject(e.Object)
	}
	handler(event{e.Object.Version(), e.Initial})
}

// sinkhole keeps the compiler from leaving reads out.
var sinkhole atomic.Int64

func (f *fairlead) readObject(r *store.Record) {
	if f.typed {
		if pod, err := store.As[corev1.Pod](r); err == nil {
			sinkhole.Add(int64(len(pod.Spec.Containers) + len(pod.Status.Phase)))
		}
		return
	}
	if u, err := store.As[unstructured.Unstructured](r); err == nil {
		sinkhole.Add(int64(len(u.Object)))
	}
}

func (f *fairlead) whole(on bool) { f.header.Store(!on) }

func (f *fairlead) readAll() (n int) {
	for r := range f.store.Snapshot().All() {
		f.readObject(r)
		n++
	}
	return n
}

func (f *fairlead) keys(n int) []key {
	var out []key
	for r := range f.store.Snapshot().All() {
		if out = append(out, key{r.Namespace(), r.Name()}); len(out) == n {
			break
		}
	}
	return out
}

func (f *fairlead) get(k key) error {
	if f.typed {
		_, err := store.Of[corev1.Pod](f.store).Get(store.Key{Namespace: k.namespace, Name: k.name})
		return err
	}
	_, err := store.Unstructured(f.store).Get(store.Key{Namespace: k.namespace, Name: k.name})
	return err
}

func (f *fairlead) byIndex(value string) (n int) {
	if !f.typed {
		for range store.Unstructured(f.store).Index("bucket", value) {
			n++
		}
		return n
	}
	for range store.Of[corev1.Pod](f.store).Index("bucket", value) {
		n++
	}
	return n
}

func (f *fairlead) stop() {
	f.cancel()
	<-f.done
	<-f.read
	f.store.Close()
}
