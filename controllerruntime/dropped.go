package controllerruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/internal/store"
)

// Objects of a kind with dropped fields lack these fields. Sending such an object whole would delete them on the
// server.

// DroppedError means that the client refused to send a whole object that lacks fields which the cache drops. Patch the
// object instead, or read it from the server first with the manager's GetAPIReader.
type DroppedError struct {
	Kind  schema.GroupVersionKind
	Key   client.ObjectKey
	Paths []string // dropped fields that the server has
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("cannot write %s %s whole: the cache does not keep %s, which would be lost; patch it instead",
		e.Kind.Kind, e.Key, strings.Join(e.Paths, ", "))
}

// careful is a client that refuses to send whole objects with dropped fields.
type careful struct {
	client.Client
	opt    Options
	stores []*store.Cache
}

// Update implements client.Writer.
func (c careful) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := c.check(obj, ""); err != nil {
		return err
	}
	return c.Client.Update(ctx, obj, opts...)
}

// Patch implements client.Writer. Only an apply sends a whole object.
func (c careful) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if patch.Type() == types.ApplyPatchType {
		if err := c.checkApply(obj); err != nil {
			return err
		}
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

// Status implements client.StatusClient.
func (c careful) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c careful) SubResource(name string) client.SubResourceClient {
	return carefulSub{c.Client.SubResource(name), c, name}
}

// carefulSub is careful for a subresource.
type carefulSub struct {
	client.SubResourceClient
	c    careful
	name string
}

// Update implements client.SubResourceWriter.
func (s carefulSub) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	var o client.SubResourceUpdateOptions
	o.ApplyOptions(opts)
	if o.SubResourceBody == nil {
		if err := s.c.check(obj, s.name); err != nil {
			return err
		}
	}
	return s.SubResourceClient.Update(ctx, obj, opts...)
}

// checkApply refuses to apply an object from the cache without its managedFields. The server refuses an apply of an
// object with managedFields.
func (c careful) checkApply(obj client.Object) error {
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	if obj.GetUID() == "" || len(obj.GetManagedFields()) > 0 || c.opt.content(kind.GroupKind()).ManagedFields {
		return c.check(obj, "")
	}
	return &DroppedError{kind, client.ObjectKeyFromObject(obj), []string{"metadata.managedFields"}}
}

// check refuses an object that lacks a field which the server has and the store drops. For a subresource, only fields
// below the field of that name count. An object without uid and resourceVersion is a new object and passes.
func (c careful) check(obj client.Object, sub string) error {
	kind, err := c.GroupVersionKindFor(obj)
	isNew := obj.GetUID() == "" && obj.GetResourceVersion() == ""
	if err != nil || isNew || len(c.opt.content(kind.GroupKind()).Drop) == 0 {
		return err
	}
	m, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	key, lost := client.ObjectKeyFromObject(obj), []string(nil)
	for _, path := range c.dropped(m.Resource, store.Key(key)) {
		beneath := sub == "" || path == sub || strings.HasPrefix(path, sub+".") || strings.HasPrefix(path, sub+"[")
		if beneath && !has(content, path) && !slices.Contains(lost, path) {
			lost = append(lost, path)
		}
	}
	if len(lost) > 0 {
		return &DroppedError{kind, key, lost}
	}
	return nil
}

// dropped returns the paths that the server has of an object and the stores do not keep.
func (c careful) dropped(resource schema.GroupVersionResource, key store.Key) (paths []string) {
	for _, cache := range c.stores {
		for _, st := range cache.Lookup(resource) {
			if r, ok := st.Get(key); ok {
				paths = append(paths, r.Dropped()...)
			}
		}
	}
	return paths
}

// has reports whether content has the field at a path in the notation of cache.Content.
func has(content map[string]any, path string) bool {
	_, there, err := unstructured.NestedFieldNoCopy(content, membersOf(path)...)
	return there && err == nil
}

// membersOf returns the field names of a path.
func membersOf(path string) (members []string) {
	for path != "" {
		var member string
		if rest, bracketed := strings.CutPrefix(path, "["); bracketed {
			member, path, _ = strings.Cut(rest, "]")
		} else if at := strings.IndexAny(path, ".["); at >= 0 {
			member, path = path[:at], path[at:]
		} else {
			member, path = path, ""
		}
		members = append(members, member)
		path = strings.TrimPrefix(path, ".")
	}
	return members
}

// checkDrop reports paths that no Go type of their kind has. Such a path is mistyped, and the field that it should drop
// would be kept. It cannot check kinds that the scheme does not know.
func (o *Options) checkDrop(scheme *runtime.Scheme) error {
	types := map[schema.GroupKind][]reflect.Type{}
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			types[gvk.GroupKind()] = append(types[gvk.GroupKind()], t)
		}
	}
	for kind, paths := range o.Drop {
		of := types[kind]
		for _, path := range paths {
			has := func(t reflect.Type) bool { return mayHave(t, membersOf(path)) }
			if len(of) > 0 && !slices.ContainsFunc(of, has) {
				return fmt.Errorf("cannot drop %s of %s: there is no such field in %v", path, kind, of[0])
			}
		}
	}
	return nil
}

// mayHave reports whether objects of a Go type may have a field at the path.
func mayHave(t reflect.Type, members []string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(members) == 0 || t.Kind() != reflect.Struct {
		return true
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		inline := f.Anonymous && name == "" || strings.Contains(rest, "inline")
		if inline && mayHave(f.Type, members) || !inline && name == members[0] && mayHave(f.Type, members[1:]) {
			return true
		}
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}
