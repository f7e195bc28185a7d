package fairlead

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// task is a named function that runs with the runtime.
type task struct {
	name string
	run  func(context.Context) error
}

// tasks runs tasks concurrently. The first failure stops the others; all errors are kept.
type tasks struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the goroutines of the group
	cancel context.CancelFunc
	fail   func(error) // called with each error

	mu      sync.Mutex
	ended   bool
	running map[string]int
	errs    []error
	done    sync.WaitGroup
}

func newTasks(ctx context.Context, fail func(error)) *tasks {
	g := &tasks{fail: fail, running: map[string]int{}}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// add starts a task unless the group has been stopped.
func (g *tasks) add(t task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.running[t.name]++
	g.done.Go(func() { t.protect(g.ctx, func(err error) { g.returned(t, err) }) })
}

// returned records the end of a task.
func (g *tasks) returned(t task, err error) {
	g.mu.Lock()
	if g.running[t.name]--; g.running[t.name] == 0 {
		delete(g.running, t.name)
	}
	if err != nil {
		g.errs = append(g.errs, err)
	}
	g.mu.Unlock()
	if err != nil {
		g.fail(err)
	}
}

// stop cancels the context of the tasks and waits for them up to bound. It returns their errors in order of occurrence,
// and the names of the tasks still running.
func (g *tasks) stop(bound time.Duration) error {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.cancel()
	done := make(chan struct{})
	go func() { // ends with the last task
		g.done.Wait()
		close(done)
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	var late error
	select {
	case <-done:
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.running) > 0 {
		late = fmt.Errorf("cannot stop: still running after %v: %s", bound,
			strings.Join(slices.Sorted(maps.Keys(g.running)), ", "))
	}
	return errors.Join(append(slices.Clone(g.errs), late)...)
}

// protect runs a task and reports its error with its name. A panic and runtime.Goexit are errors; after Goexit only
// deferred calls run. Context cancellation is not an error.
func (t task) protect(ctx context.Context, report func(error)) {
	var err error
	p := protect.CallOr(func() { err = t.run(ctx) }, func() { report(fmt.Errorf("%s: %w", t.name, errGoexit)) })
	switch {
	case p != nil:
		err = fmt.Errorf("%s panicked: %w", t.name, p)
	case err == nil:
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		err = nil
	default:
		err = fmt.Errorf("%s: %w", t.name, err)
	}
	report(err)
}

// additions are the functions of Add: they wait until the runtime starts them, and start at once from then on.
type additions struct {
	mu      sync.Mutex // before tasks.mu
	waiting []task
	running *tasks
}

func (a *additions) add(t task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil {
		a.running.add(t)
		return
	}
	a.waiting = append(a.waiting, t)
}

// start starts the waiting functions in g, and later ones when they are added.
func (a *additions) start(g *tasks) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = g
	for _, t := range a.waiting {
		g.add(t)
	}
	a.waiting = nil
}

var errGoexit = errors.New("it ended its goroutine")
