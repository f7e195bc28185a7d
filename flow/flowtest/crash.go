package flowtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// World is the state that survives a crash. The test makes a new World for each play. Only Packet and Check are
// required.
type World[P any] struct {
	// Packet makes the packet of a start from the surviving state. It is called for each start, including those after a
	// crash.
	Packet func() *P
	// Check checks the outcome. err is that of the fiber started after the last crash.
	Check func(t testing.TB, err error)
	// Positions stores the positions; default a new flow.Memory.
	Positions flow.Positions
	// Crashes is the number of crashes in a row; default 1. Each crash is placed at every boundary that remains after
	// the previous ones. The number of plays grows with the number of boundaries to this power.
	Crashes int
	// Down is the time between a crash and the next start; default 0. Deadlines keep counting during it.
	Down time.Duration
	// Trace, if set, compares what the steps see with what they see without a crash. With Down there is no comparison,
	// because deadlines that pass change what the steps see.
	Trace *Trace
}

// Crash runs the flow once without a crash, and then once for each boundary. The boundaries are before and after each
// step, each save and each clear of a position. At its boundary the engine crashes. Crash then starts the flow again,
// on a new engine with the positions saved so far, and checks the world. After the crash, no change of the first engine
// reaches the positions, and it begins no further step. opt.Key defaults to "key". opt.Positions and opt.OnEnd are
// ignored.
func Crash[P any](t *testing.T, fl *flow.Flow[P], opt flow.StartOptions, world func(t testing.TB) World[P]) {
	t.Helper()
	everywhere(t, player[P]{t: t, flow: fl, opt: opt, world: world})
}

// Move is like Crash with moves (flow.Handle.Interrupt) instead of crashes. At each boundary the fiber is interrupted.
// After it has ended as flow.Moved, it continues on a new engine. No step is cut off.
func Move[P any](t *testing.T, fl *flow.Flow[P], opt flow.StartOptions, world func(t testing.TB) World[P]) {
	t.Helper()
	everywhere(t, player[P]{t: t, flow: fl, opt: opt, world: world, moves: true})
}

func everywhere[P any](t *testing.T, p player[P]) {
	t.Helper()
	if p.opt.Key == "" {
		p.opt.Key = "key"
	}
	p.play(nil)
	p.crash(nil)
}

// player plays a flow with a sequence of crashes.
type player[P any] struct {
	t       *testing.T
	flow    *flow.Flow[P]
	opt     flow.StartOptions
	world   func(t testing.TB) World[P]
	moves   bool // move instead of crashing
	crashes int
	whole   story // of the play without a crash
}

// crash plays the flow with the given crashes and one more, at each boundary.
func (p *player[P]) crash(before []int) {
	for n := 1; !p.t.Failed(); n++ {
		at := append(slices.Clone(before), n)
		if !p.play(at) {
			return
		}
		if len(at) < p.crashes {
			p.crash(at)
		}
	}
}

// play plays the flow with a crash at each of the boundaries. Each boundary is counted from the preceding start. play
// reports whether the flow reached the last one.
func (p *player[P]) play(boundaries []int) (came bool) {
	synctest.Test(p.t, func(t *testing.T) {
		w := p.world(t)
		if w.Positions == nil {
			w.Positions = &flow.Memory{}
		}
		p.crashes = max(1, w.Crashes)
		var crashed []string
		defer func() {
			if t.Failed() && len(crashed) > 0 { // logs here, because the test ends with the bubble
				t.Logf("that was after a crash %s", strings.Join(crashed, ", and one "))
			}
		}()
		var told story
		for i := 0; ; i++ {
			c := &crasher{
				Positions: w.Positions, trace: w.Trace, left: math.MaxInt, began: time.Now(),
				dead: make(chan struct{}), moves: p.moves, started: make(chan struct{}),
			}
			if i < len(boundaries) {
				c.left = boundaries[i]
			}
			status, err := p.run(t, c, w)
			told.add(w.Trace, c, err)
			if w.Trace != nil && w.Down == 0 && boundaries != nil {
				told.compare(t, p.whole, w.Trace.Times)
			}
			over := c.at != "" && p.moves && status != flow.Moved // the fiber ended before it could move
			if c.at == "" || over {
				w.Check(t, err)
				came = i == len(boundaries) || over && i == len(boundaries)-1
				break
			}
			crashed = append(crashed, c.at)
			time.Sleep(w.Down) //nolint:forbidigo // on the fake clock
		}
		if boundaries == nil {
			p.whole = told
		}
	})
	return came
}

// run starts the flow and waits until it has ended or the engine has crashed.
func (p *player[P]) run(t *testing.T, c *crasher, w World[P]) (flow.Status, error) {
	e := flow.NewEngine(flow.EngineOptions{Hook: c.hook})
	defer e.Close(context.Background()) //nolint:errcheck // cannot fail without a deadline
	opt := p.opt
	opt.Positions, opt.OnEnd = c, nil
	c.trace.begin()
	h, err := p.flow.Start(context.Background(), e, w.Packet(), opt)
	if err != nil {
		t.Fatal(err)
	}
	c.root = h
	close(c.started)
	select {
	case <-h.Done():
	case <-c.dead:
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return h.Status(), h.Err()
}

var errCrash = errors.New("crash")

// crasher counts boundaries and crashes the engine at one of them.
type crasher struct {
	flow.Positions
	trace *Trace
	dead  chan struct{}
	began time.Time

	moves   bool
	root    flow.Handle // valid after started is closed
	started chan struct{}

	mu    sync.Mutex
	left  int
	at    string
	saved *mark
}

// boundary counts a boundary and reports whether the engine has crashed, here or before.
func (c *crasher) boundary(format string, args ...any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.at = fmt.Sprintf(format, args...)
		if c.moves {
			<-c.started
			c.root.Interrupt(flow.ErrMoved)
		} else {
			close(c.dead)
		}
	}
	return c.left <= 0 && !c.moves
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
	if !after {
		c.trace.add(h.Info())
	}
}

func (c *crasher) Load(ctx context.Context, key string) (flow.Position, bool, error) {
	return c.Positions.Load(ctx, key)
}

func (c *crasher) Save(ctx context.Context, key string, p flow.Position) error {
	return c.around("saving "+p.Reason+" at "+p.Step, func() error {
		err := c.Positions.Save(ctx, key, p)
		c.mark(err, c.trace.after(p))
		return err
	})
}

func (c *crasher) Clear(ctx context.Context, key string) error {
	return c.around("clearing", func() error {
		err := c.Positions.Clear(ctx, key)
		c.mark(err, mark{again: true})
		return err
	})
}

// mark records where the next start continues.
func (c *crasher) mark(err error, m mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.saved = &m
	}
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
