package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// sharing opens gained slots. A slot is open once the watches show every write of its former holder. Its lock is taken
// before that of the slots.
type sharing struct {
	slots *handover.Slots
	log   *slog.Logger
	// await waits until the watches show every object of the slots as of the call.
	await func(ctx context.Context, slots shard.Set) error
	// opened is called after slots have been opened.
	opened func(slots shard.Set)

	mu       sync.Mutex
	arriving shard.Set               // gained slots that are not open yet
	change   context.CancelCauseFunc // ends the wait for arriving slots; nil before it
}

// errChanged ends a wait because the arriving slots have changed.
var errChanged = errors.New("waiting for other slots")

// gain adds slots that arrive.
func (s *sharing) gain(slots shard.Set) { s.update(slots, s.slots.Layout().Set()) }

// lose removes slots that are not open yet. It does not change open ones.
func (s *sharing) lose(slots shard.Set) { s.update(s.slots.Layout().Set(), slots) }

func (s *sharing) update(add, remove shard.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arriving = add.Union(s.arriving).Minus(remove)
	s.endWait()
}

// wait returns the arriving slots, and a context that ends when they change.
func (s *sharing) wait(ctx context.Context) (context.Context, shard.Set) {
	ctx, change := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWait()
	s.change = change
	return ctx, s.arriving
}

// endWait ends the context of the last wait. The caller holds s.mu.
func (s *sharing) endWait() {
	if s.change != nil {
		s.change(errChanged)
	}
}

// open admits work on the arriving slots, unless the context of wait has ended.
func (s *sharing) open(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	s.slots.Gain(s.arriving)
	s.arriving = s.slots.Layout().Set()
	return true
}

// run opens gained slots until ctx ends.
func (s *sharing) run(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; {
		same, slots := s.wait(ctx)
		if slots.IsEmpty() {
			attempt = 0
			<-same.Done()
			continue
		}
		err := s.await(same, slots)
		switch {
		case same.Err() != nil:
			attempt = 0
		case err != nil:
			s.log.WarnContext(ctx, "cannot start work on slots yet", "slots", slots.String(), "error", err)
			_ = backoff.Pause(same, reopening.Delay(attempt, rand.Float64)) // the loop checks ctx
			attempt++
		case s.open(same):
			attempt = 0
			s.opened(slots)
		}
	}
}

// spansSlots reports whether a watch of another kind must hold the objects of every slot. The related objects share the
// slot of the primary only if the layout is by namespace and both kinds, or neither, are namespaced.
func spansSlots(layout shard.Layout, w *watch, mapper meta.RESTMapper, namespaced bool) (bool, error) {
	if layout.By != shard.Namespace {
		return true, nil
	}
	m, err := mapper.RESTMapping(w.kind.GroupKind(), w.kind.Version)
	if err != nil {
		return false, err
	}
	return (m.Scope.Name() == meta.RESTScopeNameNamespace) != namespaced, nil
}
