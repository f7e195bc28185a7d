package main

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	frontdoor "github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/observe"
)

const watched observe.Selector = "watched"

// door is Fairlead with its public API: a runtime with one source and one sync observer.
type door struct {
	protobuf bool
	header   atomic.Bool
	known    func() *store.Store
	view     view
	cancel   context.CancelFunc
	done     chan error
}

func newDoor(protobuf bool) *door {
	return &door{protobuf: protobuf, done: make(chan error, 1)}
}

func (d *door) start(ctx context.Context, t target, handler func(event)) error {
	var options []source.Option
	if t.list {
		options = append(options, source.NoWatchList())
		if !t.paged {
			options = append(options, source.PageSize(-1))
		}
	}
	rt := frontdoor.New(t.cfg)
	var synced <-chan struct{}
	if d.protobuf {
		observe.Source[corev1.Pod](rt, watched, append(options, source.WithEncoding(source.Protobuf))...)
		synced = declare(d, rt, handler, func(p *corev1.Pod) int { return len(p.Spec.Containers) + len(p.Status.Phase) })
	} else {
		observe.SourceOfKind(rt, watched, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, options...)
		synced = declare(d, rt, handler, func(u *unstructured.Unstructured) int { return len(u.Object) })
	}
	ctx, d.cancel = context.WithCancel(ctx)
	go func() { d.done <- rt.Run(ctx) }()
	select {
	case <-synced:
	case err := <-d.done:
		return err
	}
	d.view = viewFor(d.known(), t.corpus, d.protobuf)
	return d.known().AddIndex("bucket", func(r *store.Record) ([]string, error) {
		return []string{bucketOf(r.Name())}, nil
	})
}

// declare adds the observer, which reads changed objects. It skips the initial objects, which readAll reads in a
// separate measurement.
func declare[T any, P observe.Object[T]](
	d *door, rt *frontdoor.Runtime, handler func(event), touch func(*T) int,
) <-chan struct{} {
	known := observe.Known[T, P](rt, watched)
	d.known = known.Store
	observe.On[T, P](rt, watched, func(_ context.Context, e observe.Event[T]) error {
		if e.Type != observe.Added && e.Type != observe.Modified {
			return nil
		}
		if !e.Initial && !d.header.Load() {
			sinkhole.Add(int64(touch(e.Object())))
		}
		handler(event{e.ResourceVersion(), e.Initial})
		return nil
	})
	return known.Synced()
}

func (d *door) whole(on bool) { d.header.Store(!on) }

func (d *door) readAll() (n int) {
	for r := range d.known().Snapshot().All() {
		d.view.read(r)
		n++
	}
	return n
}

func (d *door) keys(n int) []key {
	var out []key
	for r := range d.known().Snapshot().All() {
		if out = append(out, key{r.Namespace(), r.Name()}); len(out) == n {
			break
		}
	}
	return out
}

func (d *door) get(k key) error {
	return d.view.get(store.Key{Namespace: k.namespace, Name: k.name})
}

func (d *door) byIndex(value string) int { return d.view.index(value) }

func (d *door) stop() {
	d.cancel()
	<-d.done
}
