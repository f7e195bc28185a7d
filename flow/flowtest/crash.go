package flowtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/flow"
)

// World is what survives a crash, made anew for each one.
type World[P any] struct {
	// Packet makes the packet of a start, from what survives; also after the crash.
	Packet func() *P
	// Check looks at the outcome: err is that of the fiber that was started after the crash.
	Check func(t testing.TB, err error)
	// Positions defaults to memory.
	Positions flow.Positions
}

// Crash runs the flow once for each boundary (before and after each step, each save and each clear of a position), has the engine
// crash there, starts the flow again on a new engine and the positions saved so far, and checks the world. Crash means: nothing
// that the first engine does from then on reaches the positions, and no further step of it begins. opt.Key defaults to "key";
// opt.Positions and opt.OnEnd are not used.
func Crash[P any](t *testing.T, fl *flow.Flow[P], opt flow.StartOptions, world func(t testing.TB) World[P]) {
	t.Helper()
	if opt.Key == "" {
		opt.Key = "key"
	}
	for n := 1; ; n++ {
		at := ""
		synctest.Test(t, func(t *testing.T) {
			w := world(t)
			if w.Positions == nil {
				w.Positions = &flow.Memory{}
			}
			c := &crasher{Positions: w.Positions, left: n, dead: make(chan struct{})}
			at = runUntil(t, c, fl, opt, w)
			defer func() {
				if t.Failed() { // the bubble ends the test
					t.Logf("that was after a crash %s", at)
				}
			}()
			if at == "" {
				return
			}
			again := flow.NewEngine(flow.EngineOptions{})
			defer again.Close(context.Background()) //nolint:errcheck // without a deadline it cannot fail
			opt := opt
			opt.Positions, opt.OnEnd = w.Positions, nil
			h, err := fl.Start(context.Background(), again, w.Packet(), opt)
			if err != nil {
				t.Fatal(err)
			}
			err = h.Wait(context.Background())
			w.Check(t, err)
		})
		if at == "" {
			return
		}
	}
}

// runUntil runs the flow until the crash, and says where that was; "" if the flow came to its end before.
func runUntil[P any](t *testing.T, c *crasher, fl *flow.Flow[P], opt flow.StartOptions, w World[P]) string {
	e := flow.NewEngine(flow.EngineOptions{Hook: c.hook})
	opt.Positions, opt.OnEnd = c, nil
	h, err := fl.Start(context.Background(), e, w.Packet(), opt)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Done():
	case <-c.dead:
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == "" {
		w.Check(t, h.Err())
	}
	return c.at
}

var errCrash = errors.New("crash")

// crasher counts boundaries and stops the world at one of them.
type crasher struct {
	flow.Positions
	dead chan struct{}

	mu   sync.Mutex
	left int
	at   string
}

// boundary says whether the engine is dead, as of here or before.
func (c *crasher) boundary(format string, args ...any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.at = fmt.Sprintf(format, args...)
		close(c.dead)
	}
	return c.left <= 0
}

func (c *crasher) hook(h flow.Handle, path string, after bool) {
	when := "before"
	if after {
		when = "after"
	}
	if c.boundary("%s step %s", when, path) {
		h.Cancel(errCrash)
		panic(errCrash)
	}
}

func (c *crasher) Load(ctx context.Context, key string) (flow.Position, bool, error) {
	return c.Positions.Load(ctx, key)
}

func (c *crasher) Save(ctx context.Context, key string, p flow.Position) error {
	return c.around("saving "+p.Reason+" at "+p.Step, func() error { return c.Positions.Save(ctx, key, p) })
}

func (c *crasher) Clear(ctx context.Context, key string) error {
	return c.around("clearing", func() error { return c.Positions.Clear(ctx, key) })
}

func (c *crasher) around(what string, call func() error) error {
	if c.boundary("before %s", what) {
		return errCrash
	}
	if err := call(); err != nil {
		return err
	}
	if c.boundary("after %s", what) {
		return errCrash
	}
	return nil
}
