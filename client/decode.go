package client

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
)

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

func (it *items) done() { it.target.Set(it.slice) }

var errNotAList = errors.New("the list has no items of objects")
