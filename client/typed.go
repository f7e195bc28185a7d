package client

import (
	"context"
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/store"
)

// ObjectOf is a pointer to a Go type that the Scheme knows, such as *corev1.Pod for corev1.Pod.
type ObjectOf[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// Get returns an object. If its kind and namespace are watched, it returns the store's object, which is shared and
// READ-ONLY. Otherwise it reads a new one from the server. If the object does not exist, the error satisfies
// apierrors.IsNotFound.
func Get[T any, PT ObjectOf[T]](ctx context.Context, c *Client, key Key) (*T, error) {
	k, err := kindFor[T, PT](c)
	if err != nil {
		return nil, err
	}
	r, from, err := c.lookup(ctx, k, key, isMetadata(PT(nil)))
	switch {
	case err != nil:
		return nil, err
	case from:
		return store.As[T](r)
	}
	obj := PT(new(T))
	if err := c.getLive(ctx, k, key, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// List yields objects in no particular order. If the kind and the namespace are watched, it yields the store's objects,
// which are shared and READ-ONLY, all from one version of the store. Otherwise it reads them from the server, page by
// page. An error ends the sequence, except the decoding error of a single object.
func List[T any, PT ObjectOf[T]](ctx context.Context, c *Client, opts ...ReadOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		k, err := kindFor[T, PT](c)
		if err != nil {
			yield(nil, err)
			return
		}
		o := resolveRead(opts)
		o.metadata = isMetadata(PT(nil))
		records, _, err := c.snapshot(ctx, k, &o)
		if err == nil && records == nil {
			err = c.fence(ctx)
		}
		if err != nil {
			yield(nil, k.fail("list", Key{Namespace: o.namespace}, err))
			return
		}
		if records == nil {
			p := c.shown(ctx, c.opt.Policy)
			if p.PageSize == 0 {
				p.PageSize = call.CachePage
			}
			for obj, err := range call.List[T, PT](ctx, c.call, c.listRequest(k, &o, accept(PT(nil), true)), p) {
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

func kindFor[T any, PT ObjectOf[T]](c *Client) (*kind, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if k, ok := c.kinds.byType.Load(reflect.TypeFor[*T]()); ok {
		return k.(*kind), nil
	}
	return c.kindOf(PT(new(T)))
}
