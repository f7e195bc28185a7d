package observe

import (
	"context"
	"fmt"
	"iter"
	"reflect"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Collection is the known state of a source: typed, read-only, shared with everybody. It includes the program's own
// writes as soon as they are made. It is empty until the source has been started, and complete after Synced. It is safe
// for concurrent use.
type Collection[T any] struct{ observer *Observer }

// Known declares interest in the known state of a selector, as an observer does: its source is watched, and what is
// wrong with the declaration is reported at start. T is as for [On].
func Known[T any, P Object[T]](h Host, s Selector) *Collection[T] {
	o := &Observer{
		selector: s, object: reflect.TypeFor[T](), place: declared(), registry: h.Observers(),
		opts: newOptions(nil),
	}
	o.opts.name, o.opts.mask, o.opts.passive = "collection at "+o.place, OnSynchronized, true
	o.call = func(context.Context, *store.Event) error { return nil }
	o.registry.declareObserver(o)
	return &Collection[T]{observer: o}
}

// Get returns the object of a key, shared and read-only; cache.ErrNotFound if there is none, ErrNotRunning before the
// source has been started, or a *cache.DecodeError.
func (c *Collection[T]) Get(key cache.Key) (*T, error) {
	f := c.observer.feed.Load()
	if f == nil {
		return nil, fmt.Errorf("cannot get %s: %w", key, ErrNotRunning)
	}
	r, ok := f.store.Get(key)
	if !ok || !c.matches(r) {
		return nil, cache.ErrNotFound
	}
	return store.As[T](r)
}

// All yields every object of one version of the known state. Those that cannot be decoded are left out; see Get.
func (c *Collection[T]) All() iter.Seq2[cache.Key, *T] {
	return c.each(func(s store.Snapshot) iter.Seq[*cache.Record] { return s.All() })
}

// InNamespace yields the objects of a namespace.
func (c *Collection[T]) InNamespace(namespace string) iter.Seq2[cache.Key, *T] {
	return c.each(func(s store.Snapshot) iter.Seq[*cache.Record] { return s.InNamespace(namespace) })
}

// Select yields the objects whose labels match.
func (c *Collection[T]) Select(selector labels.Selector) iter.Seq2[cache.Key, *T] {
	return c.each(func(s store.Snapshot) iter.Seq[*cache.Record] { return s.Select(selector) })
}

// Index yields the objects that an index of the store has under a value; see cache.IndexBy.
func (c *Collection[T]) Index(name, value string) iter.Seq2[cache.Key, *T] {
	return c.each(func(s store.Snapshot) iter.Seq[*cache.Record] { return s.Index(name, value) })
}

// Len returns the number of objects.
func (c *Collection[T]) Len() int {
	f := c.observer.feed.Load()
	switch {
	case f == nil:
		return 0
	case c.observer.filter == nil:
		return f.store.Len()
	}
	n := 0
	for r := range f.store.Snapshot().All() {
		if c.matches(r) {
			n++
		}
	}
	return n
}

// Synced returns a channel that is closed when the collection is complete for the first time.
func (c *Collection[T]) Synced() <-chan struct{} { return c.observer.Synced() }

// Store returns the store behind the collection, which knows no filter; nil before the source has been started.
func (c *Collection[T]) Store() *cache.Store {
	if f := c.observer.feed.Load(); f != nil {
		return f.store
	}
	return nil
}

// Remove gives the interest up; the collection is empty then.
func (c *Collection[T]) Remove() { c.observer.Remove() }

func (c *Collection[T]) each(records func(store.Snapshot) iter.Seq[*cache.Record]) iter.Seq2[cache.Key, *T] {
	return func(yield func(cache.Key, *T) bool) {
		f := c.observer.feed.Load()
		if f == nil {
			return
		}
		for r := range records(f.store.Snapshot()) {
			if !c.matches(r) {
				continue
			}
			if o, err := store.As[T](r); err == nil && !yield(r.Key(), o) {
				return
			}
		}
	}
}

// matches asks the filters. One that panics leaves the object out.
func (c *Collection[T]) matches(r *cache.Record) (ok bool) {
	if c.observer.filter == nil {
		return true
	}
	if p := protect.Call(func() { ok = c.observer.filter(r) }); p != nil {
		c.observer.registry.log.Error("filter panicked", "selector", c.observer.selector.String(),
			"key", r.Key().String(), "panic", p.Value)
		return false
	}
	return ok
}
