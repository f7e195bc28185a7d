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

// Get fills obj from the store if its kind and namespace are watched, else from the server. It overwrites the previous
// content of obj. If the object does not exist, the error satisfies apierrors.IsNotFound.
func (c *Client) Get(ctx context.Context, key Key, obj Object) error {
	k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	r, from, err := c.lookup(ctx, k, key, isMetadata(obj))
	switch {
	case err != nil:
		return err
	case from:
		return fill(k, r, obj)
	}
	return c.getLive(ctx, k, key, obj)
}

// List fills list from the store if the kind and the namespace are watched, else from the server, page by page.
func (c *Client) List(ctx context.Context, list ObjectList, opts ...ReadOption) error {
	k, err := c.kindOfList(list)
	if err != nil {
		return err
	}
	o := resolveRead(opts)
	o.metadata = isMetadata(list)
	items, err := newItems(list)
	if err != nil {
		return k.fail("list", Key{Namespace: o.namespace}, err)
	}
	snapshot, version, err := c.snapshot(ctx, k, &o)
	if err != nil {
		return k.fail("list", Key{Namespace: o.namespace}, err)
	}
	if snapshot == nil {
		return c.listLive(ctx, k, &o, list, items)
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

// Live returns a reader that always asks the server.
func (c *Client) Live() Reader { return liveReader{c} }

type liveReader struct{ c *Client }

func (l liveReader) Get(ctx context.Context, key Key, obj Object) error {
	k, err := l.c.kindOf(obj)
	if err != nil {
		return err
	}
	return l.c.getLive(ctx, k, key, obj)
}

func (l liveReader) List(ctx context.Context, list ObjectList, opts ...ReadOption) error {
	return l.c.List(ctx, list, append(opts[:len(opts):len(opts)], Live())...)
}

// getFresh is Get for a caller that has seen the object with a uid and a version. If the cache is older than that, or
// has no such object, it asks the server.
func (c *Client) getFresh(ctx context.Context, key Key, obj Object, uid types.UID, version string) error {
	k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	r, from, err := c.lookup(ctx, k, key, isMetadata(obj))
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err == nil && from && (uid == "" || uid == r.UID()) && !outdated(r, uid, version):
		return fill(k, r, obj)
	}
	return c.getLive(ctx, k, key, obj)
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

func (c *Client) getLive(ctx context.Context, k *kind, key Key, obj Object) error {
	a, err := c.fetch(ctx, k, key, accept(obj, false))
	if err != nil {
		return err
	}
	return into(k, a, obj)
}

func (c *Client) fetch(ctx context.Context, k *kind, key Key, accept string) (*call.Answer, error) {
	if err := c.fence(ctx); err != nil {
		return nil, k.fail("get", key, err)
	}
	if key.Name == "" || k.namespaced && key.Namespace == "" {
		return nil, k.fail("get", key, errNoName)
	}
	if !k.namespaced {
		key.Namespace = ""
	}
	return call.Do(ctx, c.call, call.Request{
		Verb: call.VerbGet, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: key.Namespace, Name: key.Name, Accept: accept,
	}, c.shown(ctx, c.opt.Policy))
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

func (c *Client) listRequest(k *kind, o *readOptions, accept string) call.Request {
	return call.Request{Resource: k.gvr, Kind: k.gvk.Kind, Namespace: o.namespace, Query: o.query(), Accept: accept}
}

func (c *Client) listLive(ctx context.Context, k *kind, o *readOptions, list ObjectList, items *items) error {
	if err := c.fence(ctx); err != nil {
		return k.fail("list", Key{Namespace: o.namespace}, err)
	}
	p := c.shown(ctx, c.opt.Policy)
	if p.PageSize == 0 {
		p.PageSize = call.CachePage
	}
	for page, err := range call.Pages(ctx, c.call, c.listRequest(k, o, accept(list, true)), p) {
		if err != nil {
			return err
		}
		if page.Restarted {
			items.clear()
		}
		for i := range page.Items {
			obj := items.next()
			if err := page.Decode(i, obj); err != nil {
				return err
			}
			name(k, obj)
			items.add(obj)
		}
		list.SetResourceVersion(page.Version)
	}
	items.done()
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	return nil
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
