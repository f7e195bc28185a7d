package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/flow/flowtest"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// chaos starts, cancels, wakes and inspects fibers in an order that a schedule decides.
type chaos struct {
	s       *flowtest.Schedule
	m       *flowtest.Monitor
	e       *flow.Engine
	signal  flow.Signal
	store   flaky
	mu      sync.Mutex
	tokens  []flow.Token
	handles []flow.Handle
	points  int
}

type item struct {
	c     *chaos
	depth int
	steps int
}

func (c *chaos) name(what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.points++
	return fmt.Sprintf("%s#%d", what, c.points)
}

// pause waits. Half of the calls return when their context ends, the other half ignore it.
func (c *chaos) pause(ctx context.Context, what string) {
	if c.s.N(2) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	name := c.name(what)
	if len(name)%2 == 0 { // without a decision, so that recorded seeds keep their meaning
		flow.Blocking(ctx, func() { c.s.Point(ctx, name) })
		return
	}
	c.s.Point(ctx, name)
}

func anything(ctx context.Context, f *flow.Fiber[item]) flow.Next {
	c := f.Packet.c
	f.Packet.steps++
	if c.s.N(2) == 0 {
		c.pause(ctx, f.Path())
	}
	if f.Packet.steps > 12 {
		return f.End()
	}
	switch c.s.N(16) {
	case 0:
		return f.Yield()
	case 1:
		return f.Delay(time.Duration(c.s.N(int(5 * time.Millisecond))))
	case 2:
		return f.Retry(time.Duration(c.s.N(int(5 * time.Millisecond))))
	case 3, 4:
		t := f.Token()
		c.mu.Lock()
		c.tokens = append(c.tokens, t)
		c.mu.Unlock()
		if c.s.N(2) == 0 {
			return f.Suspend(t)
		}
		return f.Suspend(t, func(ctx context.Context) error {
			c.pause(ctx, "action of "+f.Path())
			if c.s.N(8) == 0 {
				panic("in the action")
			}
			return nil
		}).Else("b")
	case 5:
		return f.Await(&c.signal, flow.Timeout(time.Duration(c.s.N(int(20*time.Millisecond)))),
			flow.Func(func(ctx context.Context) (bool, error) {
				return c.s.N(4) == 0, nil
			}, 3*time.Millisecond))
	case 6, 7, 8:
		if f.Packet.depth >= 2 {
			return f.Next()
		}
		var kids []flow.Child
		for range c.s.N(4) {
			kids = append(kids, work(c).Child("", &item{c: c, depth: f.Packet.depth + 1}))
		}
		mode := [][]flow.Option{nil, {flow.FailFast()}, {flow.Limit(1)}, {flow.Limit(2), flow.FailFast()}}[c.s.N(4)]
		if len(kids) > 0 && c.s.N(3) == 0 {
			mode = []flow.Option{flow.Quorum(1 + c.s.N(len(kids)))}
		}
		return f.Fork(kids, mode...)
	case 9:
		return f.Fail(errors.New("by chance"))
	case 10:
		panic("by chance")
	case 11:
		return f.Goto("again")
	case 12:
		return f.End()
	}
	return f.Next()
}

func work(c *chaos) *flow.Flow[item] {
	step := flowtest.Watched(c.m, anything)
	return flow.New("work", flow.Step("a", step, flow.Deadline(15*time.Millisecond)), flow.Detour("again", step),
		flow.Step("b", step, flow.Retry(flow.Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond, Attempts: 3})),
		flow.Step("c", step, flow.Save()))
}

// flaky is a slow store that fails at random.
type flaky struct {
	flow.Memory
	c *chaos
}

func (s *flaky) Load(ctx context.Context, key string) (flow.Position, bool, error) {
	s.c.pause(ctx, "load "+key)
	if s.c.s.N(4) == 0 {
		return flow.Position{}, false, errors.New("cannot reach the store")
	}
	return s.Memory.Load(ctx, key)
}

func (s *flaky) Save(ctx context.Context, key string, p flow.Position) error {
	s.c.pause(ctx, "save "+key)
	switch s.c.s.N(8) {
	case 0:
		return errors.New("cannot reach the store")
	case 1:
		panic("in the store")
	}
	return s.Memory.Save(ctx, key, p)
}

// one picks an element of a list, and may remove it.
func one[T any](c *chaos, list *[]T, keep bool) (T, bool) {
	c.mu.Lock()
	n := len(*list)
	c.mu.Unlock()
	var zero T
	if n == 0 {
		return zero, false
	}
	i := c.s.N(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := (*list)[i]
	if !keep {
		*list = slices.Delete(*list, i, i+1)
	}
	return v, true
}

// starter starts fibers of two keys and of none, in all modes, with callbacks that sometimes chain another fiber.
func (c *chaos) starter(starterName string, n int) {
	c.s.Go(starterName, func(pass func()) {
		for i := range n {
			pass()
			opt := flow.StartOptions{Key: []string{"x/one", "x/two", ""}[c.s.N(3)], Mode: flow.Mode(c.s.N(3))}
			if c.s.N(4) == 0 {
				opt.Timeout = time.Duration(1 + c.s.N(int(30*time.Millisecond)))
			}
			if opt.Key != "" && c.s.N(3) == 0 {
				opt.Positions = &c.store
			}
			c.start(fmt.Sprintf("%s-%d", starterName, i), opt, c.s.N(3) == 0)
		}
	})
}

func (c *chaos) start(name string, opt flow.StartOptions, chain bool) {
	opt.OnEnd = c.m.OnEnd(name, func(r flow.Result) {
		c.pause(context.Background(), "callback of "+name)
		if chain && opt.Key != "" {
			c.start(name+"-failure", flow.StartOptions{Key: opt.Key, IfCurrent: r.Handle}, false)
		}
		if c.s.N(8) == 0 {
			panic("in the callback")
		}
	})
	h, err := work(c).Start(context.Background(), c.e, &item{c: c}, opt)
	c.m.Started(name, h, err)
	switch {
	case err == nil:
		c.mu.Lock()
		c.handles = append(c.handles, h)
		c.mu.Unlock()
	case errors.Is(err, flow.ErrBusy), errors.Is(err, flow.ErrNotCurrent), errors.Is(err, flow.ErrClosed):
	default:
		c.s.Error(err)
	}
}

func TestF1AndF2OnEverySchedule(t *testing.T) {
	t.Parallel()
	schedules := 2000
	if testing.Short() || seed.Race { // make test plays all of them
		schedules = 300
	}
	flowtest.Explore(t, schedules, func(s *flowtest.Schedule) {
		c := &chaos{s: s, m: &flowtest.Monitor{TB: s}}
		c.store.c = c
		c.e = flow.NewEngine(flow.EngineOptions{Workers: 1 + s.N(4), PerGroup: s.N(3), Grace: 20 * time.Millisecond})
		c.starter("p", 3)
		c.starter("q", 3)
		s.Go("resume", func(pass func()) {
			for range 8 {
				pass()
				t, ok := one(c, &c.tokens, s.N(2) == 0)
				if ok && s.N(4) == 0 {
					t.Fail(errors.New("resumed with an error"))
				} else if ok {
					t.Resume(1)
				}
			}
		})
		s.Go("cancel", func(pass func()) {
			for range 3 {
				pass()
				if h, ok := one(c, &c.handles, true); ok {
					h.Cancel(errors.New("by hand"))
				}
				pass()
				c.signal.Set()
				pass()
				c.signal.Clear()
			}
		})
		closing := s.N(2) == 0
		if closing {
			s.Go("close", func(pass func()) {
				for range s.N(20) {
					pass()
				}
				c.e.Close(context.Background())
			})
		}
		s.Go("look", func(pass func()) {
			for range 3 {
				pass()
				for range c.e.Fibers() {
				}
			}
		})
		// Suspended fibers are resumed at the end, so that only a fault of the engine can hang the test.
		s.Run(time.Minute, func() bool {
			for t, ok := one(c, &c.tokens, false); ok; t, ok = one(c, &c.tokens, false) {
				t.Resume(nil)
			}
			return c.e.Live() == 0
		})
		if n := c.e.Live(); n != 0 {
			for i := range c.e.Fibers() {
				s.Errorf("left: %+v", i)
			}
		}
		c.e.Close(context.Background())
		c.m.Check()
	})
}
