package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// fairlead is a source and a store. viewFor says how its objects are read.
type fairlead struct {
	protobuf bool
	metadata bool // metadata only
	header   atomic.Bool
	store    *store.Store
	view     view
	applying applying
	cancel   context.CancelFunc
	done     chan error
	read     chan struct{}
}

func newFairlead(protobuf bool) *fairlead {
	return &fairlead{protobuf: protobuf, done: make(chan error, 1)}
}

func newFairleadMetadata() *fairlead {
	f := newFairlead(true)
	f.metadata = true
	return f
}

func (f *fairlead) start(ctx context.Context, t target, handler func(event)) error {
	gvr, kind := podsResource, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	if t.corpus == "widgets" {
		gvr, kind = widgetsResource, widgetKind
	}
	f.store = store.New(store.Options{
		Resource: gvr, Kind: kind, Namespaced: true, Scheme: scheme.Scheme, Content: store.Content{Metadata: f.metadata},
	})
	f.view = viewFor(f.store, t.corpus, f.protobuf)
	if f.metadata {
		touch := func(m *metav1.PartialObjectMetadata) int { return len(m.Labels) }
		f.view = viewOf[metav1.PartialObjectMetadata]{f.store, touch}
	}
	if err := f.store.AddIndex("bucket", func(r *store.Record) ([]string, error) {
		return []string{bucketOf(r.Name())}, nil
	}); err != nil {
		return err
	}
	cfg := source.Config{REST: t.cfg, Resource: gvr, NoWatchList: t.list, Metadata: f.metadata}
	if t.list && !t.paged {
		cfg.PageSize = -1
	}
	if f.protobuf {
		cfg.Encoding = source.Protobuf
	}
	src, err := source.New(cfg, func(namespace string) source.Sink {
		return timedSink{f.store.Sink(namespace), &f.applying}
	})
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

// subscribe handles changes from the start of the watch. It skips the initial objects, which readAll reads in a
// separate measurement.
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
		f.view.read(e.Object)
	}
	handler(event{e.Object.Version(), e.Initial})
}

func (f *fairlead) whole(on bool) { f.header.Store(!on) }

func (f *fairlead) readAll() (n int) {
	for r := range f.store.Snapshot().All() {
		f.view.read(r)
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
	return f.view.get(store.Key{Namespace: k.namespace, Name: k.name})
}

func (f *fairlead) byIndex(value string) int { return f.view.index(value) }

func (f *fairlead) watchApply() { f.applying.begin() }

func (f *fairlead) applied() []time.Duration { return f.applying.end() }

func (f *fairlead) stop() {
	f.cancel()
	<-f.done
	<-f.read
	f.store.Close()
}

// applying records the time that each change takes to apply, while it is on.
type applying struct {
	on   atomic.Bool
	mu   sync.Mutex
	took []time.Duration
}

func (a *applying) begin() { a.on.Store(true) }

func (a *applying) end() []time.Duration {
	a.on.Store(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	took := a.took
	a.took = nil
	return took
}

// timedSink measures the writer of row S8. The time of Apply includes the time that the writer waits for readers.
type timedSink struct {
	source.Sink
	applying *applying
}

func (t timedSink) Apply(c source.ChangeType, o *source.Object) error {
	if !t.applying.on.Load() {
		return t.Sink.Apply(c, o)
	}
	begin := time.Now()
	err := t.Sink.Apply(c, o)
	took := time.Since(begin)
	t.applying.mu.Lock()
	defer t.applying.mu.Unlock()
	t.applying.took = append(t.applying.took, took)
	return err
}
