package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// TestSharing: gained slots open together and once, after the watches show them. Lost slots do not open.
func TestSharing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		layout := shard.Layout{Slots: 4}
		ready := make(chan error) // receives an outcome for the current wait
		var opened []shard.Set
		s := &sharing{
			slots: handover.New(layout, nil, nil), log: slog.New(slog.DiscardHandler),
			await: func(ctx context.Context, _ shard.Set) error {
				select {
				case err := <-ready:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			opened: func(slots shard.Set) { opened = append(opened, slots) },
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.run(ctx) }()

		s.gain(layout.Set(0))
		synctest.Wait()
		if s.slots.Holds(0) {
			t.Error("slot 0 is open before the watches show it")
		}
		s.gain(layout.Set(1, 2))
		s.lose(layout.Set(1)) // before it was opened
		synctest.Wait()
		ready <- errors.New("no connection")
		synctest.Wait()
		time.Sleep(2 * reopening.Cap) // the back-off
		ready <- nil
		synctest.Wait()
		if len(opened) != 1 || opened[0] != layout.Set(0, 2) {
			t.Fatalf("opened %v, want one set of the slots 0 and 2", opened)
		}
		for slot, want := range []bool{true, false, true, false} {
			if s.slots.Holds(slot) != want {
				t.Errorf("slot %d is open: %v", slot, !want)
			}
		}
		s.gain(layout.Set(3))
		synctest.Wait()
		ready <- nil
		synctest.Wait()
		if len(opened) != 2 || opened[1] != layout.Set(3) {
			t.Errorf("opened %v, want slot 3 at last", opened)
		}
		stop()
		<-ended
	})
}
