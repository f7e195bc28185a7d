package webhook

import "context"

// Phase is what is computed for a definition.
type Phase string

// The phases.
const (
	Compiling Phase = "compiling"
	Rendering Phase = "rendering"
	Judging   Phase = "judging"
)

// Witness is told what is computed for definitions, which is code of tenants, while it is computed: so that it can be
// said afterwards what a process was at when it died. It must be safe for concurrent use, and quick.
type Witness interface {
	// Begin is told what begins, and returns what is called at its end, in the same goroutine. Nothing is computed for
	// another definition meanwhile if it is alone.
	Begin(d *Definition, p Phase, alone bool) (end func())
	// Suspects tells whether something is to be computed alone.
	Suspects(d *Definition) bool
}

// compute runs f when it is the turn of the namespace.
func (c *Client) compute(ctx context.Context, d *Definition, p Phase, f func()) error {
	if c.witness == nil {
		return c.turns.do(ctx, d.Namespace, f)
	}
	alone := c.witness.Suspects(d)
	observed := func() {
		defer c.witness.Begin(d, p, alone)()
		f()
	}
	if alone {
		return c.turns.doAlone(ctx, d.Namespace, observed)
	}
	return c.turns.do(ctx, d.Namespace, observed)
}
