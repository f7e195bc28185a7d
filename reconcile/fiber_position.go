package reconcile

import (
	"context"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

// nowhere keeps no positions: fibers begin anew.
type nowhere struct{}

func (nowhere) Load(context.Context, string) (p flow.Position, found bool, err error) { return }
func (nowhere) Save(context.Context, string, flow.Position) error                     { return nil }
func (nowhere) Clear(context.Context, string) error                                   { return nil }

// statusAt is the position of a fiber in the status, which outlives the fiber: that it has completed is kept there.
type statusAt[T any, PT client.ObjectOf[T]] struct {
	*client.StatusPosition[T, PT]
	end  flow.Position                                 // what is kept of a completed fiber
	kept bool                                          // it is kept
	load func(context.Context) (*flow.Position, error) // of an undoing: what is saved, as the server has it

	waiting call.Waiting // of the requests of its steps
}

// Load implements [flow.Positions]. How far another process came, whose writes the cache may not show yet, decides
// about what is undone.
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

// Save implements [flow.Positions]. An object that is gone has no end to be saved.
func (s *statusAt[T, PT]) Save(ctx context.Context, key string, p flow.Position) error {
	s.end.Begun, s.end.Version = p.Begun, p.Version
	err := s.StatusPosition.Save(ctx, key, p)
	if p.Ended && isGone(err) {
		return nil
	}
	return err
}

// Clear implements [flow.Positions]: the fiber has completed.
func (s *statusAt[T, PT]) Clear(ctx context.Context, key string) error {
	s.end.Started = time.Now().UTC()
	err := s.StatusPosition.Save(ctx, key, s.end)
	s.kept = err == nil || isGone(err)
	if s.kept {
		return nil
	}
	return err
}
