package controllerruntime

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/store"
)

// ErrReadOnly is returned by methods that would change the content of an informer. Only the API server changes it.
var ErrReadOnly = errors.New("the content of an informer is read-only")

// indexer reads the store of an informer as a cache.Indexer. What it returns is shared and READ-ONLY.
type indexer struct{ in *informer }

var _ cache.Indexer = indexer{}

func (x indexer) Add(any) error               { return ErrReadOnly }
func (x indexer) Update(any) error            { return ErrReadOnly }
func (x indexer) Delete(any) error            { return ErrReadOnly }
func (x indexer) Replace([]any, string) error { return ErrReadOnly }
func (x indexer) Resync() error               { return nil }
func (x indexer) Bookmark(string)             {}

// LastStoreSyncResourceVersion implements cache.Store.
func (x indexer) LastStoreSyncResourceVersion() string { return x.in.LastSyncResourceVersion() }

// List implements cache.Store.
func (x indexer) List() []any {
	v, ok := x.in.snapshot()
	if !ok {
		return []any{}
	}
	return x.objects(v.All(), v.Len())
}

// ListKeys implements cache.Store.
func (x indexer) ListKeys() []string {
	v, ok := x.in.snapshot()
	if !ok {
		return []string{}
	}
	return keys(v.All())
}

// objects decodes records; size is the expected number.
func (x indexer) objects(records iter.Seq[*store.Record], size int) []any {
	out := make([]any, 0, size)
	for r := range records {
		if obj := x.in.object(r, nil); obj != nil {
			out = append(out, obj)
		}
	}
	return out
}

// keys returns the keys of records.
func keys(records iter.Seq[*store.Record]) []string {
	out := []string{}
	for r := range records {
		out = append(out, r.Key().String())
	}
	return out
}

// Get implements cache.Store.
func (x indexer) Get(obj any) (item any, exists bool, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return x.GetByKey(key)
}

// GetByKey implements cache.Store.
func (x indexer) GetByKey(key string) (item any, exists bool, err error) {
	v, ok := x.in.snapshot()
	if !ok {
		return nil, false, nil
	}
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	r, ok := v.Get(store.Key{Namespace: namespace, Name: name})
	if !ok {
		return nil, false, nil
	}
	obj, err := x.in.decode(r, nil)
	return obj, err == nil, err
}

// Index implements cache.Indexer.
func (x indexer) Index(name string, obj any) ([]any, error) {
	known, err := x.in.indexOf(name)
	if err != nil {
		return nil, err
	}
	values, err := known.fn(obj)
	if err != nil {
		return nil, err
	}
	return x.objects(func(yield func(*store.Record) bool) {
		v, ok := x.in.snapshot()
		if !ok {
			return
		}
		seen := map[*store.Record]bool{}
		for _, value := range values {
			for r := range known.under(v, value) {
				if !seen[r] && !yield(r) {
					return
				}
				seen[r] = true
			}
		}
	}, 0), nil
}

// ByIndex implements cache.Indexer.
func (x indexer) ByIndex(name, value string) ([]any, error) {
	records, err := x.byIndex(name, value)
	if err != nil {
		return nil, err
	}
	return x.objects(records, 0), nil
}

// IndexKeys implements cache.Indexer.
func (x indexer) IndexKeys(name, value string) ([]string, error) {
	records, err := x.byIndex(name, value)
	if err != nil {
		return nil, err
	}
	out := keys(records)
	slices.Sort(out)
	return out, nil
}

func (x indexer) byIndex(name, value string) (iter.Seq[*store.Record], error) {
	known, err := x.in.indexOf(name)
	if err != nil {
		return nil, err
	}
	v, ok := x.in.snapshot()
	if !ok {
		return func(func(*store.Record) bool) {}, nil
	}
	return known.under(v, value), nil
}

// ListIndexFuncValues implements cache.Indexer.
func (x indexer) ListIndexFuncValues(name string) []string {
	out := []string{}
	known, err := x.in.indexOf(name)
	if err != nil {
		return out
	}
	if v, ok := x.in.snapshot(); ok {
		out = slices.AppendSeq(out, known.values(v))
	}
	return out
}

// GetIndexers implements cache.Indexer.
func (x indexer) GetIndexers() cache.Indexers {
	x.in.mu.Lock()
	defer x.in.mu.Unlock()
	out := make(cache.Indexers, len(x.in.indexes))
	for name, known := range x.in.indexes {
		out[name] = known.fn
	}
	return out
}

// AddIndexers implements cache.Indexer.
func (x indexer) AddIndexers(more cache.Indexers) error { return x.in.AddIndexers(more) }

// errNoIndex returns the error text of client-go.
func errNoIndex(name string) error {
	return fmt.Errorf("Index with name %s does not exist", name)
}
