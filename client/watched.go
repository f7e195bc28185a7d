package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/fairlead-io/fairlead/store"
)

// stores returns all stores of a kind: a shared slice, those without a selector first.
func (c *Client) stores(k *kind) []*store.Store {
	if c.opt.Cache == nil {
		return nil
	}
	return c.opt.Cache.Lookup(k.gvr)
}

// unordered says whether the versions of a store are opaque: a change can be told, but not which of two is newer.
func unordered(st *store.Store) bool {
	for _, r := range st.Version() {
		if r < '0' || r > '9' {
			return true
		}
	}
	return false
}

// watched returns the store that answers reads of a kind: one that holds all of it, in the namespaces that it watches. Stores
// with a selector hold less than the kind and answer only those who hold them.
func (c *Client) watched(k *kind) *store.Store {
	if stores := c.stores(k); len(stores) > 0 && stores[0].Complete() {
		return stores[0]
	}
	return nil
}

// knows says whether a store's silence about a namespace ("": all of them) means absence.
func knows(st *store.Store, namespace string) bool {
	for _, scope := range st.Statuses() {
		if scope.Namespace == "" || scope.Namespace == namespace {
			return scope.Synced
		}
	}
	return false
}

// lookup finds an object in the store. from is false when the server must be asked; an object that the store knows to be
// absent is an error.
func (c *Client) lookup(_ context.Context, k *kind, key Key) (r *store.Record, from bool, err error) {
	if !k.namespaced {
		key.Namespace = ""
	}
	if key.Name == "" || k.namespaced && key.Namespace == "" { // no object, so none that is absent
		return nil, false, k.fail("get", key, ErrNoName)
	}
	st := c.watched(k)
	if st == nil || st.Overdue(key) {
		return nil, false, nil
	}
	r, ok := st.Get(key)
	switch {
	case ok:
		return r, true, nil
	case knows(st, key.Namespace):
		return nil, true, k.absent(key)
	}
	return nil, false, nil
}

// snapshot returns the records that a list selects, of one version of the store; nil when the server must be asked.
func (c *Client) snapshot(_ context.Context, k *kind, o *readOptions) (iter.Seq[*store.Record], string, error) {
	if o.err != nil {
		return nil, "", fmt.Errorf("malformed selector: %w", o.err)
	}
	st := c.watched(k)
	if o.index != "" && (st == nil || o.live || !o.fromStore() || !knows(st, o.namespace)) { // the server cannot answer instead
		return nil, "", fmt.Errorf("an index is a part of the store: %w", ErrNotWatched)
	}
	if st == nil || o.live || !o.fromStore() || !knows(st, o.namespace) || len(st.OverlayStats().Overdue) > 0 && o.index == "" {
		return nil, "", nil
	}
	version := st.Version()
	s := st.Snapshot()
	var all iter.Seq[*store.Record]
	switch {
	case o.index != "":
		if !s.HasIndex(o.index) {
			return nil, "", fmt.Errorf("%w: %s", ErrNoIndex, o.index)
		}
		all = s.Index(o.index, o.indexValue)
	case o.namespace != "":
		all = s.InNamespace(o.namespace)
	default:
		all = s.All()
	}
	return func(yield func(*store.Record) bool) {
		for r := range all {
			if (o.namespace == "" || r.Namespace() == o.namespace) && (o.labels.Empty() || o.labels.Matches(r.Labels())) && matchesName(o.fields, r) && !yield(r) {
				return
			}
		}
	}, version, nil
}
