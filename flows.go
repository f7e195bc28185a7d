package fairlead

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// engines holds the engine of a runtime: that of Flows, or one made at the first call of Engine.
type engines struct {
	mu     sync.Mutex
	engine *flow.Engine
}

// use sets the engine.
func (e *engines) use(engine *flow.Engine) error {
	if engine == nil {
		return errors.New("cannot add an engine: it is nil")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.engine != nil && e.engine != engine {
		return errors.New("cannot add an engine: there is one already")
	}
	e.engine = engine
	return nil
}

// get returns the engine; nil if there is none.
func (e *engines) get() *flow.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.engine
}

// orMake returns the engine. made is true for the call that makes it.
func (e *engines) orMake() (engine *flow.Engine, made bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.engine == nil {
		e.engine, made = flow.NewEngine(flow.EngineOptions{}), true
	}
	return e.engine, made
}

// endFlows waits for the end of ctx. Then it lets the fibers of an engine finish for the time of drain, and cancels
// them.
func endFlows(ctx context.Context, e *flow.Engine, drain time.Duration) error {
	<-ctx.Done()
	base := context.WithoutCancel(ctx)
	draining, cancel := context.WithTimeout(base, max(0, drain))
	defer cancel()
	_ = e.Drain(draining) // Close cancels the remaining fibers
	bound, stop := context.WithTimeout(base, grace)
	defer stop()
	return e.Close(bound)
}
