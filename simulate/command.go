package simulate

import (
	"context"
	"errors"
	"io"

	"github.com/fairlead-io/fairlead/simulate/internal/engine"
	"github.com/fairlead-io/fairlead/simulate/internal/live"
)

// live plays the command on real control planes.
func (c *course) live(ctx context.Context, o engine.Options, plan *engine.Plan, progress io.Writer) (
	report *engine.Report, err error,
) {
	d, err := live.NewDriver(live.Options{
		Command: c.command, CRDs: c.crds, Steps: c.setup.Steps, Invariants: c.setup.Invariants, Outside: c.setup.Outside,
		Progress: progress,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	o.Workers, o.Late = 1, live.Late
	return play(ctx, d, o, plan)
}
