package reconcile

import (
	"context"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
)

// noPositions stores no positions: fibers restart from their first step.
type noPositions struct{}

func (noPositions) Load(context.Context, string) (p flow.Position, found bool, err error) { return }
func (noPositions) Save(context.Context, string, flow.Position) error                     { return nil }

func (noPositions) Clear(context.Context, string) error { return nil }

// statusAt stores the position of a fiber in the status. The final position outlives the fiber.
type statusAt[T any, PT client.ObjectOf[T]] struct {
	*client.StatusPosition[T, PT]
	end      flow.Position                                 // the position of the completed fiber
	endSaved bool                                          // end is saved
	load     func(context.Context) (*flow.Position, error) // reads the saved position from the server, for Undo

	waiting binding.Waiting // for the requests of its steps
}

// Load implements [flow.Positions]. Undo depends on the last position that any process saved, and the cache may not
// show it yet.
func (s *statusAt[T, PT]) Load(ctx context.Context, key string) (flow.Position, bool, error) {
	if s.load == nil {
		return s.StatusPosition.Load(ctx, key)
	}
	p, err := s.load(ctx)
	if isGone(err) || err == nil && p == nil {
		return flow.Position{}, false, nil
	}
	if err != nil {
		return flow.Position{}, false, err
	}
	return *p, true, nil
}

// Save implements [flow.Positions]. A final position of a deleted object is not saved.
func (s *statusAt[T, PT]) Save(ctx context.Context, key string, p flow.Position) error {
	s.end.Begun, s.end.Version = p.Begun, p.Version
	err := s.StatusPosition.Save(ctx, key, p)
	if p.Ended && isGone(err) {
		return nil
	}
	return err
}

// Clear implements [flow.Positions]. It saves the final position instead of removing the last one.
func (s *statusAt[T, PT]) Clear(ctx context.Context, key string) error {
	s.end.Started = time.Now().UTC()
	err := s.StatusPosition.Save(ctx, key, s.end)
	s.endSaved = err == nil || isGone(err)
	if s.endSaved {
		return nil
	}
	return err
}
