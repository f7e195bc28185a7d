package store

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Handle is a claim to a store of a Cache. A Handle made of a Store alone is no claim; another owner closes that store.
type Handle struct {
	*Store
	catalog  *catalog // nil: no claim
	entry    *cacheEntry
	released atomic.Bool
}

// Release gives up the claim. The store must not be used after that.
func (h *Handle) Release() {
	if h != nil && !h.released.Swap(true) && h.catalog != nil {
		h.catalog.release(h.entry)
	}
}

// SetNamespaces changes the namespaces of the store, for all handles that share it. New namespaces are listed, missing
// ones are dropped (see DropScope), and the others are not affected. No namespaces means all namespaces. SetNamespaces
// waits for the watches that end, so a subscriber must not call it.
func (h *Handle) SetNamespaces(namespaces ...string) error {
	if h == nil || h.catalog == nil {
		return fmt.Errorf("cannot set namespaces: %w", ErrNoCache)
	}
	e, resource := h.entry, h.Store.opt.Resource.GroupResource()
	if !e.store.opt.Namespaced {
		return fmt.Errorf("cannot set namespaces of %s: it has none", resource)
	}
	e.scopes.Lock()
	defer e.scopes.Unlock()
	namespaces, name := distinct(namespaces)
	switch changed, err := h.catalog.rename(e, name, h.released.Load); {
	case err != nil:
		return fmt.Errorf("cannot set namespaces of %s: %w", resource, err)
	case !changed:
		return nil
	}
	want := namespaces
	if len(want) == 0 {
		want = []string{""}
	}
	dropOthers(e.store, want) // first, so that late changes of their watches are ignored
	for _, ns := range want {
		e.store.Sink(ns) // they count for Synced from now on
	}
	e.source.SetNamespaces(namespaces...)
	dropOthers(e.store, want) // a watch that ended before it began has made its scope again
	return nil
}

// dropOthers drops the scopes that are not wanted.
func dropOthers(s *Store, want []string) {
	for _, st := range s.Statuses() {
		if !slices.Contains(want, st.Namespace) {
			s.DropScope(st.Namespace)
		}
	}
}
