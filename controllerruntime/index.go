package controllerruntime

import (
	"fmt"
	"iter"
	"reflect"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/store"
)

// index is one index of an informer.
type index struct {
	fn   cache.IndexFunc
	name string // in the store, possibly shared with other informers; "": an index built into the store
}

// byNamespace reports whether fn is client-go's namespace index, which the store has built in.
func byNamespace(fn cache.IndexFunc) bool {
	return reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// under yields the records under a value of the index.
func (x index) under(v store.Snapshot, value string) iter.Seq[*store.Record] {
	switch {
	case x.name != "":
		return v.Index(x.name, value)
	case value != "":
		return v.InNamespace(value)
	}
	return func(yield func(*store.Record) bool) { // objects without a namespace
		for r := range v.All() {
			if r.Namespace() == "" && !yield(r) {
				return
			}
		}
	}
}

// values yields the values of the index.
func (x index) values(v store.Snapshot) iter.Seq[string] {
	if x.name != "" {
		return v.IndexValues(x.name)
	}
	return v.IndexValues(store.IndexNamespace)
}

// indexOf returns an index that is complete.
func (in *informer) indexOf(name string) (index, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	known, ok := in.indexes[name]
	if !ok {
		return index{}, errNoIndex(name)
	}
	return known, nil
}

// AddIndexers implements cache.SharedIndexInformer. It returns when the indexes are complete.
func (in *informer) AddIndexers(more cache.Indexers) error {
	in.indexing.Lock()
	defer in.indexing.Unlock()
	in.mu.Lock()
	added, err := in.newIndexesLocked(more)
	handle := in.handle
	if err == nil && handle == nil { // they are made at the start
		for name, x := range added {
			in.indexes[name] = x
		}
	}
	in.mu.Unlock()
	if err != nil || handle == nil {
		return err
	}
	if err := in.fill(handle.Store, added); err != nil {
		for _, x := range added {
			handle.RemoveIndex(x.name)
		}
		return fmt.Errorf("cannot add indexers to the informer of %s: %w", in.name, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for name, x := range added {
		in.indexes[name] = x
	}
	return nil
}

// newIndexesLocked names the indexes to add. The caller holds in.mu.
func (in *informer) newIndexesLocked(more cache.Indexers) (map[string]index, error) {
	if in.stopped {
		return nil, fmt.Errorf("cannot add indexers: the informer of %s has stopped", in.name)
	}
	out := make(map[string]index, len(more))
	for name, fn := range more {
		if _, exists := in.indexes[name]; exists {
			return nil, fmt.Errorf("cannot add indexers: the informer of %s has one named %q", in.name, name)
		}
		out[name] = index{fn: fn}
		if !byNamespace(fn) {
			out[name] = index{fn, fmt.Sprintf("%p %s", in, name)}
		}
	}
	return out, nil
}

// fill creates indexes in a store. It fails if a present object cannot be indexed. Errors of later objects are
// reported.
func (in *informer) fill(st *store.Store, indexes map[string]index) error {
	for name, x := range indexes {
		if x.name == "" {
			continue
		}
		if err := st.AddIndex(x.name, in.valuesBy(name, x.fn)); err != nil {
			return err
		}
		for _, err := range st.Snapshot().IndexErrors(x.name) {
			return err
		}
	}
	return nil
}

// valuesBy adapts an index function of client-go to records.
func (in *informer) valuesBy(name string, fn cache.IndexFunc) store.IndexFunc {
	return func(r *store.Record) (values []string, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the index function panicked: %v", p)
			}
			if err != nil {
				utilruntime.HandleError(fmt.Errorf("%s: cannot index %s by %q: %w", in.name, r.Key(), name, err))
			}
		}()
		obj, err := in.decode(r, nil)
		if err != nil {
			return nil, err
		}
		return fn(obj)
	}
}
