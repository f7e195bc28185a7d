package alloc

import (
	"context"

	"github.com/fairlead-io/fairlead/client"
)

// Release gives back the value of a slot. It marks the slot as being released, calls release, and empties the slot.
// release receives the idempotency key and the value. An empty value is unknown: a resource may or may not exist for
// the key. Release may call release again for the same value, also concurrently from another process. release must
// therefore treat an absent resource as success.
//
// Release does nothing if the slot is empty or the object does not exist. It confirms both with the server.
func Release[T any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, release func(
		ctx context.Context, key, value string,
	) error, opts ...Option,
) error {
	a := begin(ctx, "release", c, obj, slot, opts)
	if err := a.check(release == nil); err != nil {
		return a.fail(err)
	}
	if err := a.giveBack(ctx, release); err != nil && !a.stored.gone(err) {
		return a.fail(err)
	}
	return nil
}

// giveBack first marks the key as being released. From then on no process can record a value for it without noticing
// the release, even if the status is cleared.
func (a *allocation[T, PT]) giveBack(
	ctx context.Context, release func(ctx context.Context, key, value string) error,
) error {
	releasing := func(_ PT, s *Slot) error {
		s.Releasing = s.Key != ""
		return nil
	}
	if err := a.stored.change(ctx, inMark, releasing); err != nil {
		return err
	}
	s, err := a.stored.slot()
	if err != nil || s.Key == "" {
		return err
	}
	if a.stored.marked() && !a.stored.at(inSlot).Releasing {
		read := func(_ PT, now *Slot) error { s = *now; return nil }
		if err := a.stored.change(ctx, inSlot, read); err != nil || !s.Releasing {
			return err
		}
	}
	for late := true; late; {
		given, err := a.release(ctx, s, release)
		if err != nil {
			return err
		}
		err = a.stored.change(ctx, inSlot, func(_ PT, now *Slot) error {
			late = false
			switch {
			case now.Key != s.Key || now.Released != s.Released: // another process has emptied it
			case now.Value != "" && now.Value != given: // a create that was in flight has recorded its value
				late, s = true, *now
			default:
				*now = Slot{Released: s.Released + 1}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !a.stored.marked() {
		return nil
	}
	return a.stored.change(ctx, inMark, func(PT, *Slot) error { return nil })
}

// release calls the user's function and returns the value that it passed.
func (a *allocation[T, PT]) release(
	ctx context.Context, s Slot, fn func(ctx context.Context, key, value string) error,
) (string, error) {
	err := guard(func() error {
		if s.Value == "" && a.find != nil {
			value, found, err := a.find(ctx, s.Key)
			if err != nil || !found {
				return err
			}
			s.Value = value
		}
		return fn(ctx, s.Key, s.Value)
	})
	return s.Value, err
}
