package alloc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/client"
)

// recordTimeout bounds the time to record a value after the context has ended.
const recordTimeout = 15 * time.Second

// errLost is matched when an object is being deleted without the finalizer, so no controller would release a recorded
// value.
var errLost = fmt.Errorf("%w, and %w", ErrDeleting, ErrNoFinalizer)

// record writes the value of an intent into its slot, even if ctx has ended, so that the resource remains known. If the
// status was cleared, record restores the intent. If the server's state shows that the value can never be recorded,
// record calls the Discard function.
func (a *allocation[T, PT]) record(ctx context.Context, intent Slot, value string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := a.stored.change(ctx, inSlot, func(o PT, s *Slot) error {
		if err := a.recordable(o, *s, intent, value); err != nil {
			return err
		}
		s.Releasing = s.Releasing && s.Released == intent.Released
		s.Key, s.Value, s.Released = intent.Key, value, intent.Released
		return nil
	})
	orphan := &OrphanError{IdempotencyKey: intent.Key, Value: value, Err: err}
	var never *neverError
	switch {
	case err == nil:
		if s, err := a.stored.slot(); err != nil || s.Releasing { // the releasing process also releases this value
			return errors.Join(err, ErrReleasing)
		}
		return nil
	case a.stored.gone(err):
	case errors.As(err, &never): // mark it, so that the value cannot be recorded even if the status is cleared
		err := a.stored.change(ctx, inMark, func(o PT, s *Slot) error {
			if err := a.recordable(o, *s, intent, value); !errors.As(err, &never) {
				return errors.Join(err, errStale)
			}
			return nil
		})
		switch {
		case err == nil, a.stored.gone(err):
		case errors.Is(err, errStale): // the status was cleared: the next attempt uses the same key
			return fmt.Errorf("cannot record the value: %w", err)
		default:
			orphan.Err = errors.Join(orphan.Err, fmt.Errorf("cannot mark its key as used: %w", err))
			return orphan
		}
	case errors.Is(err, errTwoValues), errors.Is(err, errSuperseded):
		return orphan // its key may be in use: a provider that goes by keys could release the recorded value
	default:
		return fmt.Errorf("cannot record the value: %w", err)
	}
	if a.discard != nil {
		if e := guard(func() error { return a.discard(ctx, intent.Key, value) }); e != nil {
			orphan.Err = errors.Join(orphan.Err, fmt.Errorf("cannot release it: %w", e))
		} else {
			orphan.Discarded = true
		}
	}
	return orphan
}

// neverError means that a value can never be recorded, even if the status is cleared.
type neverError struct{ error }

func (e *neverError) Unwrap() error { return e.error }

// recordable returns the reason why a value cannot be recorded in a slot of an object, or nil.
func (a *options) recordable(o client.Object, s, intent Slot, value string) error {
	switch {
	case s.Released > intent.Released:
		return &neverError{errSuperseded}
	case s.Value != "" && (s.Value != value || s.Key != intent.Key):
		return fmt.Errorf("%w: %q", errTwoValues, s.Value)
	case s.Key != "" && s.Key != intent.Key && s.Released == intent.Released:
		return errSuperseded
	case s.Value == "" && o.GetDeletionTimestamp() != nil && a.finalizer != "" && !a.unguarded &&
		!slices.Contains(o.GetFinalizers(), a.finalizer):
		return &neverError{errLost}
	}
	return nil
}
