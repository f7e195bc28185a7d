package watch

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// TestHeldSlots: each change is reported once. A slot that is lost after the drain bound counts as lost until it is
// gained again.
func TestHeldSlots(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{Slots: 4}
	var reported []string
	h := newHeldSlots(layout, func(held shard.Set) { reported = append(reported, held.String()) })
	late, end := context.WithCancel(t.Context())
	end()
	h.gain(layout.Set(0, 1, 2))
	h.gain(layout.Set(1))
	if !h.lose(t.Context(), layout.Set(0)) || h.lose(t.Context(), layout.Set(0)) {
		t.Error("a slot is lost not once")
	}
	if !h.lose(late, layout.Set(1)) || h.lost != layout.Set(1) {
		t.Errorf("lost after the drain bound: %v, want 1", h.lost)
	}
	h.gain(layout.Set(1))
	if !h.lost.IsEmpty() {
		t.Errorf("a slot that was gained again is still lost: %v", h.lost)
	}
	if diff := cmp.Diff([]string{"0-2", "1-2", "2", "1-2"}, reported); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// TestHeldSlotsShowEnds: the wait for certainty ends with the context, without output.
func TestHeldSlotsShowEnds(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{Slots: 1}
	h := newHeldSlots(layout, func(shard.Set) {})
	h.gain(layout.All())
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	err := h.show(ctx, func() shard.Set {
		if asked++; asked == 2 {
			stop()
		}
		return layout.Set()
	}, nil, func([]store.Event) error {
		t.Error("it prints while the slots are uncertain")
		return nil
	})
	if err == nil {
		t.Error("no error after the context has ended")
	}
}
