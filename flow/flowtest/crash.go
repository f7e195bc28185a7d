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

// World is what survives a crash, made anew for each play. Only Packet and Check are required.
type World[P any] struct {
	// Packet makes the packet of a start, from what survives; also after the crash.
	Packet func() *P
	// Check looks at the outcome: err is that of the fiber that was started after the last crash.
	Check func(t testing.TB, err error)
	// Positions defaults to memory.
	Positions flow.Positions
	// Crashes is how many crashes follow each other, each at every boundary of what those before have left to do;
	// default 1. The number of plays is that of the boundaries to this power.
	Crashes int
	// Down is how long nothing runs between a crash and the next start; default 0. Deadlines go on counting meanwhile.
	Down time.Duration
	// Trace, if set, has what the steps see compared with what they see without a crash. It is not with Down, when
	// deadlines that pass change it.
	Trace *Trace
}

// Crash runs the flow once without a crash, and then once for each boundary (before and after each step, each save and
// each clear of a position), has the engine crash there, starts the flow again on a new engine and the positions saved
// so far, and checks the world. Crash means: nothing that the first engine does from then on reaches the positions, and
// no further step of it begins. opt.Key defaults to "key"; opt.Positions and opt.OnEnd are not used.
func Crash[P any](t *testing.T, fl *flow.Flow[P], opt flow.StartOptions, world func(t testing.TB) World[P]) {
	t.Helper()
	everywhere(t, player[P]{t: t, flow: fl, opt: opt, world: world})
}

// Move is Crash with moves (flow.Handle.Interrupt) instead of crashes: at each boundary the fiber is told to go on
// elsewhere, which it does on a new engine when it has ended as flow.Moved. No step is cut off.
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

// player plays a flow, crash after crash.
type player[P any] struct {
	t       *testing.T
	flow    *flow.Flow[P]
	opt     flow.StartOptions
	world   func(t testing.TB) World[P]
	moves   bool // instead of crashes
	crashes int
	whole   story // without a crash
}

// crash plays the flow with these crashes and one more, at each boundary.
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

// play plays the flow with a crash at each of these boundaries, each counted from the start before it, and says whether
// it came to the last of them.
func (p *player[P]) play(boundaries []int) (came bool) {
	synctest.Test(p.t, func(t *testing.T) {
		w := p.world(t)
		if w.Positions == nil {
			w.Positions = &flow.Memory{}
		}
		p.crashes = max(1, w.Crashes)
		var crashed []string
		defer func() {
			if t.Failed() && len(crashed) > 0 { // the bubble ends the test
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
			over := c.at != "" && p.moves && status != flow.Moved // it was too late to move it
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
	defer e.Close(context.Background()) //nolint:errcheck // without a deadline it cannot fail
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

// crasher counts boundaries and stops the world at one of them.
type crasher struct {
	flow.Positions
	trace *Trace
	dead  chan struct{}
	began time.Time

	moves   bool
	root    flow.Handle // when started is closed
	started chan struct{}

	mu    sync.Mutex
	left  int
	at    string
	saved *mark
}

// boundary says whether the engine is dead, as of here or before.
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

// mark notes where the next start goes on.
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
