package alloc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// recordTimeout bounds how long it is tried to record a value after the context has ended.
const recordTimeout = 15 * time.Second

// errLost is matched when an object goes without anybody who would release what is recorded in it.
var errLost = fmt.Errorf("%w, and %w", ErrDeleting, ErrNoFinalizer)

// record puts the value of an intent into its slot, although ctx may have ended meanwhile: what was made should be
// known. A slot that lacks the intent, because somebody has wiped the status, is given it again. A value that can never
// be recorded, as the server has shown, is given back.
func (a *allocation[T, PT]) record(ctx context.Context, intent Slot, value string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := a.change(ctx, inSlot, func(o PT, s *Slot) error {
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
		if s, err := a.now(); err != nil || s.Releasing { // and whoever releases it gives this value back
			return errors.Join(err, ErrReleasing)
		}
		return nil
	case a.gone(err):
	case errors.As(err, &never): // and not even if somebody wipes the status now
		err := a.change(ctx, inMark, func(o PT, s *Slot) error {
			if err := a.recordable(o, *s, intent, value); !errors.As(err, &never) {
				return errors.Join(err, errStale)
			}
			return nil
		})
		switch {
		case err == nil, a.gone(err):
		case errors.Is(err, errStale): // it has been wiped: the next attempt has the same key
			return fmt.Errorf("cannot record the value: %w", err)
		default:
			orphan.Err = errors.Join(orphan.Err, fmt.Errorf("cannot mark that its key is used up: %w", err))
			return orphan
		}
	case errors.Is(err, errTwoValues), errors.Is(err, errSuperseded):
		return orphan // its key is not used up: the provider may go by that, and take what is recorded
	default:
		return fmt.Errorf("cannot record the value: %w", err)
	}
	if a.discard != nil {
		if e := guard(func() error { return a.discard(ctx, intent.Key, value) }); e != nil {
			orphan.Err = errors.Join(orphan.Err, fmt.Errorf("cannot give it back: %w", e))
		} else {
			orphan.Discarded = true
		}
	}
	return orphan
}

// neverError says that a value can never be recorded, whatever happens to the status.
type neverError struct{ error }

func (e *neverError) Unwrap() error { return e.error }

// recordable says why a value cannot be recorded in a slot of an object.
func (a *allocation[T, PT]) recordable(o PT, s, intent Slot, value string) error {
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
