package alloc

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
)

// Release gives back the value of a slot: it is marked as being released, release is called, and the slot is emptied. release
// is given the idempotency key, and the value, which is empty if it is not known: then a resource may have been created with
// the key, or not. It may be called again for what it has released, and has to take absence for a success.
//
// Release does nothing for a slot in which nothing is recorded, nor for an object that does not exist.
func Release[T any, PT client.ObjectOf[T]](ctx context.Context, c *client.Client, obj PT, slot string, release func(ctx context.Context, key, value string) error, opts ...Option) error {
	a := begin(ctx, "release", c, obj, slot, opts)
	if err := a.check(release == nil); err != nil {
		return a.fail(err)
	}
	_, s, err := a.read(ctx, c)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return a.fail(err)
	case s.Key == "":
		return nil
	}
	err = a.modify(ctx, func(_ PT, now *Slot) error {
		now.Releasing = now.Key != ""
		s = *now
		return nil
	})
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return a.fail(err)
	case s.Key == "":
		return nil
	}
	if err := a.release(ctx, s, release); err != nil {
		return a.fail(err)
	}
	err = a.modify(ctx, func(_ PT, now *Slot) error {
		if now.Key == s.Key {
			*now = Slot{Released: now.Released + 1}
		}
		return nil
	})
	if err != nil && !isGone(err) {
		return a.fail(err)
	}
	return nil
}

func (a *allocation[T, PT]) release(ctx context.Context, s Slot, fn func(ctx context.Context, key, value string) error) error {
	return protect(func() error {
		if s.Value == "" && a.find != nil {
			value, found, err := a.find(ctx, s.Key)
			if err != nil || !found {
				return err
			}
			s.Value = value
		}
		return fn(ctx, s.Key, s.Value)
	})
}

func isGone(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced)
}
