package client

import (
	"context"
	"iter"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Get returns an object. If its kind and namespace are watched, it returns the store's object, which is shared and
// READ-ONLY. Otherwise it reads a new one from the server. If the object does not exist, the error satisfies
// apierrors.IsNotFound.
func Get[T any, PT ObjectOf[T]](ctx context.Context, c *Client, key Key) (*T, error) {
	return getTyped[T, PT](ctx, c.reader(), key)
}

func getTyped[T any, PT ObjectOf[T]](ctx context.Context, r reader, key Key) (*T, error) {
	k, err := kindFor[T, PT](r.kinds)
	if err != nil {
		return nil, err
	}
	record, from, err := r.stores.lookup(k, key, isMetadata(PT(nil)))
	switch {
	case err != nil:
		return nil, err
	case from:
		return store.As[T](record)
	}
	obj := PT(new(T))
	if err := r.server.getInto(ctx, k, key, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// List yields objects in no particular order. If the kind and the namespace are watched, it yields the store's objects,
// which are shared and READ-ONLY, all from one version of the store. Otherwise it reads them from the server, page by
// page. An error ends the sequence, except the decoding error of a single object.
func List[T any, PT ObjectOf[T]](ctx context.Context, c *Client, opts ...ReadOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		r := c.reader()
		k, err := kindFor[T, PT](r.kinds)
		if err != nil {
			yield(nil, err)
			return
		}
		o := resolveRead(opts)
		o.metadata = isMetadata(PT(nil))
		records, _, err := r.stores.snapshot(k, &o)
		if err != nil {
			yield(nil, k.fail("list", Key{Namespace: o.namespace}, err))
			return
		}
		if records == nil {
			req, p, err := r.server.list(ctx, k, &o, accept(PT(nil), true))
			if err != nil {
				yield(nil, err)
				return
			}
			for obj, err := range call.List[T, PT](ctx, r.server.call, req, p) {
				if !yield(obj, err) {
					return
				}
			}
			return
		}
		for r := range records {
			if obj, err := store.As[T](r); !yield(obj, err) {
				return
			}
		}
	}
}
