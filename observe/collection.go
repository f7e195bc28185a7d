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

// Collection is the typed, read-only known state of a source, shared by all readers. It includes the program's own
// writes at once. It is empty until the source has started, and complete after Synced. It is safe for concurrent use.
type Collection[T any] struct{ observer *Observer }

// Known declares a Collection of the objects of a selector. As for an observer, the source is then watched, and a
// mistake in the declaration is reported at start. T is as for [On].
func Known[T any, P Object[T]](h Host, s Selector) *Collection[T] {
	o := newObserver(h, s, reflect.TypeFor[T](), nil)
	o.opts.name, o.opts.mask, o.opts.passive = "collection at "+o.place, OnSynchronized, true
	o.call = func(context.Context, *store.Event) error { return nil }
	o.registry.declareObserver(o)
	return &Collection[T]{observer: o}
}

// Get returns the object of a key, shared and read-only. The error is cache.ErrNotFound if there is none, ErrNotRunning
// before the source has started, or a *cache.DecodeError.
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

// All yields every object of one version of the known state. It omits objects that cannot be decoded; Get returns their
// errors.
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

// Index yields the objects under a value in an index of the store; see fairlead.IndexField.
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

// Store returns the store behind the collection, without its filter. It returns nil before the source has started.
func (c *Collection[T]) Store() *cache.Store {
	if f := c.observer.feed.Load(); f != nil {
		return f.store
	}
	return nil
}

// Remove withdraws the declaration. The collection is empty afterwards.
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

// matches applies the filter. It reports false if the filter panics.
func (c *Collection[T]) matches(r *cache.Record) (ok bool) {
	if c.observer.filter == nil {
		return true
	}
	if p := protect.Call(func() { ok = c.observer.filter(r) }); p != nil {
		c.observer.log.Error("filter panicked", "selector", c.observer.selector.String(),
			"key", r.Key().String(), "panic", p.Value)
		return false
	}
	return ok
}
