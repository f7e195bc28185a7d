package client

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

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
