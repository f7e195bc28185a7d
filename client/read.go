package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
)

// reader reads from the stores, or else from the server.
type reader struct {
	kinds  *kinds
	stores *stores
	server server
}

func (r reader) get(ctx context.Context, key Key, obj Object) error {
	k, err := r.kinds.of(obj)
	if err != nil {
		return err
	}
	record, from, err := r.stores.lookup(k, key, isMetadata(obj))
	switch {
	case err != nil:
		return err
	case from:
		return fill(k, record, obj)
	}
	return r.server.getInto(ctx, k, key, obj)
}

// fresh is get for a caller that has seen the object with a uid and a version. If the cache is older than that, or has
// no such object, it asks the server.
func (r reader) fresh(ctx context.Context, key Key, obj Object, uid types.UID, version string) error {
	k, err := r.kinds.of(obj)
	if err != nil {
		return err
	}
	record, from, err := r.stores.lookup(k, key, isMetadata(obj))
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err == nil && from && (uid == "" || uid == record.UID()) && !outdated(record, uid, version):
		return fill(k, record, obj)
	}
	return r.server.getInto(ctx, k, key, obj)
}

// live is get from the server.
func (r reader) live(ctx context.Context, key Key, obj Object) error {
	k, err := r.kinds.of(obj)
	if err != nil {
		return err
	}
	return r.server.getInto(ctx, k, key, obj)
}

func (r reader) list(ctx context.Context, list ObjectList, opts []ReadOption) error {
	k, err := r.kinds.ofList(list)
	if err != nil {
		return err
	}
	o := resolveRead(opts)
	o.metadata = isMetadata(list)
	items, err := newItems(list)
	if err != nil {
		return k.fail("list", Key{Namespace: o.namespace}, err)
	}
	snapshot, version, err := r.stores.snapshot(k, &o)
	if err != nil {
		return k.fail("list", Key{Namespace: o.namespace}, err)
	}
	if snapshot == nil {
		return r.server.listInto(ctx, k, &o, list, items)
	}
	for r := range snapshot {
		obj := items.next()
		if err := fill(k, r, obj); err != nil {
			return err
		}
		items.add(obj)
	}
	items.done()
	list.SetResourceVersion(version)
	return nil
}

// refresh requests an object that is outdated in the stores and stores it there. It ignores errors: the next caller
// that trusts the cache detects the outdated object again.
func (r reader) refresh(ctx context.Context, obj Object) {
	k, err := r.kinds.of(obj)
	if err != nil || r.stores.complete(k) == nil {
		return
	}
	if a, err := r.server.get(ctx, k, KeyOf(obj), call.JSON); err == nil {
		_ = r.stores.put(k, a.Raw)
	}
}

type liveReader struct{ c *Client }

// Get implements Reader.
func (l liveReader) Get(ctx context.Context, key Key, obj Object) error {
	return l.c.reader().live(ctx, key, obj)
}

// List implements Reader.
func (l liveReader) List(ctx context.Context, list ObjectList, opts ...ReadOption) error {
	return l.c.reader().list(ctx, list, append(opts[:len(opts):len(opts)], Live()))
}

// fill decodes a record into an object that the caller owns.
func fill(k *kind, r *cache.Record, obj Object) error {
	err := decodeRecord(r, obj)
	if err != nil {
		return k.fail("get", r.Key(), fmt.Errorf("cannot decode it as %T: %w", obj, err))
	}
	name(k, obj)
	return nil
}

// fillKept is fill without the transform of the store.
func fillKept(k *kind, r *cache.Record, obj Object) error {
	if r.Content().Transform == nil {
		return fill(k, r, obj)
	}
	clearObject(obj)
	raw, err := r.AppendJSON(nil)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, obj)
	}
	if err != nil {
		return k.fail("get", r.Key(), fmt.Errorf("cannot decode it as %T: %w", obj, err))
	}
	name(k, obj)
	return nil
}

func decodeRecord(r *cache.Record, obj Object) error {
	u, ok := obj.(runtime.Unstructured)
	if _, usual := obj.(*unstructured.Unstructured); !ok || usual {
		return r.DecodeInto(obj)
	}
	clearObject(obj)
	var content map[string]any
	raw, err := r.AppendJSON(nil)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &content)
	}
	u.SetUnstructuredContent(content)
	return err
}

// clearObject resets obj to its zero value, because decoders leave absent fields unchanged.
func clearObject(obj runtime.Object) { reflect.ValueOf(obj).Elem().SetZero() }

// name sets the kind of an object that lacks it. Items of lists of built-in kinds lack it. Metadata-only objects carry
// the kind PartialObjectMetadata, which name replaces.
func name(k *kind, obj runtime.Object) {
	_, metadata := obj.(*metav1.PartialObjectMetadata)
	if metadata || obj.GetObjectKind().GroupVersionKind().Kind == "" {
		obj.GetObjectKind().SetGroupVersionKind(k.gvk)
	}
}

// into decodes an answer into an object that may be filled already. After an error obj is unchanged.
func into(k *kind, a *call.Answer, obj Object) error {
	fresh := reflect.New(reflect.TypeOf(obj).Elem())
	if err := a.Into(fresh.Interface().(Object)); err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(fresh.Elem())
	name(k, obj)
	return nil
}

// accept returns the Accept header: it requests only the metadata if obj holds no more.
func accept(obj runtime.Object, list bool) string {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		as := "PartialObjectMetadata"
		if list {
			as += "List"
		}
		return "application/json;as=" + as + ";g=meta.k8s.io;v=v1,application/json"
	}
	return call.JSON
}

// items collects the items of a list.
type items struct {
	target reflect.Value // the slice in the list
	slice  reflect.Value
	elem   reflect.Type
	ptr    bool
}

var errNotAList = errors.New("the list has no items of objects")

func newItems(list ObjectList) (*items, error) {
	ptr, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	target := reflect.ValueOf(ptr).Elem()
	elem := target.Type().Elem()
	it := &items{target: target, slice: reflect.MakeSlice(target.Type(), 0, 0), elem: elem}
	if elem.Kind() == reflect.Pointer {
		it.ptr, it.elem = true, elem.Elem()
	}
	if _, ok := reflect.New(it.elem).Interface().(Object); !ok {
		return nil, errNotAList
	}
	return it, nil
}

func (it *items) next() Object { return reflect.New(it.elem).Interface().(Object) }

func (it *items) add(obj Object) {
	v := reflect.ValueOf(obj)
	if !it.ptr {
		v = v.Elem()
	}
	it.slice = reflect.Append(it.slice, v)
}

func (it *items) clear() { it.slice = it.slice.Slice(0, 0) }
func (it *items) done()  { it.target.Set(it.slice) }

// matchesName evaluates the field selectors that every store supports.
func matchesName(sel fields.Selector, r *cache.Record) bool {
	return sel.Empty() || sel.Matches(fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()})
}
