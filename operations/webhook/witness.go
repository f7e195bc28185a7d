package webhook

import "context"

// Phase is a kind of computation for a definition.
type Phase string

// The phases of computation.
const (
	Compiling Phase = "compiling"
	Rendering Phase = "rendering"
	Judging   Phase = "judging"
)

// Witness observes the computations for definitions, which are tenant code, while they run. After a crash of the
// process it can thus tell which definition was being computed. It must be safe for concurrent use, and quick.
type Witness interface {
	// Begin is called when a computation starts, and returns a function that is called at its end, in the same
	// goroutine. alone means that no other definition is computed meanwhile.
	Begin(d *Definition, p Phase, alone bool) (end func())
	// Suspects reports whether the definition must be computed alone.
	Suspects(d *Definition) bool
}

// computations runs the code of definitions in turns of their namespaces, and tells the Witness. The lock is that of
// the turns.
type computations struct {
	turns   *turns
	witness Witness // nil: none
}

// run runs f in a turn of the definition's namespace. It returns the cause of ctx if ctx ends before. A Witness
// recognizes the name of this method in the crash reports of the Go runtime (executor.CrashLog).
func (c computations) run(ctx context.Context, d *Definition, p Phase, f func()) error {
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
