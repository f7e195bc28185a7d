package store

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Handle is a claim to a store. One that is made of a Store alone claims nothing: another owner closes that store.
type Handle struct {
	*Store
	c        *Cache
	e        *cacheEntry
	released atomic.Bool
}

// Release gives the claim up. The store must not be used after it.
func (h *Handle) Release() {
	if h != nil && !h.released.Swap(true) && h.c != nil {
		h.c.release(h.e)
	}
}

// SetNamespaces changes what the store covers, for all that share it: namespaces that are new are listed, those that
// are missing are dropped (see DropScope), the others go on untouched. None stands for all of them. It waits for the
// watches that end, so no subscriber must call it.
func (h *Handle) SetNamespaces(namespaces ...string) error {
	if h == nil || h.c == nil {
		return fmt.Errorf("cannot set namespaces: %w", ErrNoCache)
	}
	c, e := h.c, h.e
	if !e.store.opt.Namespaced {
		return fmt.Errorf("cannot set namespaces of %s: it has none", e.key.resource.GroupResource())
	}
	e.scopes.Lock()
	defer e.scopes.Unlock()
	namespaces, name := distinct(namespaces)
	c.mu.Lock()
	if c.ended || e.gone || h.released.Load() { // others may have what is left
		c.mu.Unlock()
		return fmt.Errorf("cannot set namespaces of %s: %w", e.key.resource.GroupResource(), ErrClosed)
	}
	if e.key.namespaces == name {
		c.mu.Unlock()
		return nil
	}
	delete(c.entries, e.key)
	e.key.namespaces, e.key.moved = name, 0
	if c.entries[e.key] != nil { // there is one for these already; both go on
		c.moves++
		e.key.moved = c.moves
	}
	c.entries[e.key] = e
	e.store.rename(e.key.scope())
	c.index()
	c.mu.Unlock()

	want := namespaces
	if len(want) == 0 {
		want = []string{""}
	}
	e.store.dropOthers(want) // first: what their watches still bring is ignored
	for _, ns := range want {
		e.store.Sink(ns) // they belong to "synced" from now on
	}
	e.source.SetNamespaces(namespaces...)
	e.store.dropOthers(want) // a watch that was ended before it had begun has made its scope anew
	return nil
}

// dropOthers drops the scopes that are not wanted.
func (s *Store) dropOthers(want []string) {
	for _, st := range s.Statuses() {
		if !slices.Contains(want, st.Namespace) {
			s.DropScope(st.Namespace)
		}
	}
}
