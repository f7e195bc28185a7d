package flow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/flow/flowtest"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// storm is the state that the fibers of the stress test share.
type storm struct {
	tokens chan flow.Token
	signal flow.Signal
}

func (s *storm) step(ctx context.Context, f *flow.Fiber[storm]) flow.Next {
	short := time.Duration(rand.N(200_000))
	switch rand.N(12) {
	case 0, 1:
		return f.Delay(short)
	case 2:
		return f.Yield()
	case 3, 4:
		t := f.Token()
		s.tokens <- t
		return f.Suspend(t)
	case 5, 6:
		return f.Await(&s.signal, flow.Func(func(context.Context) (bool, error) { return rand.N(3) == 0, nil },
			100*time.Microsecond))
	case 7:
		if f.Attempt() < 3 {
			return f.Retry(short)
		}
	case 8, 9:
		var kids []flow.Child
		for range rand.N(4) {
			kids = append(kids, leaf.Child("", s))
		}
		return f.Fork(kids, flow.FailFast(), flow.Limit(2))
	}
	return f.Next()
}

var leaf = flow.New("leaf", flow.Step("a", func(ctx context.Context, f *flow.Fiber[storm]) flow.Next {
	if rand.N(10) == 0 {
		return f.Fail(errors.New("by chance"))
	}
	return f.Delay(time.Duration(rand.N(100_000)))
}), flow.Step("b", func(ctx context.Context, f *flow.Fiber[storm]) flow.Next { return f.Yield() }))

// TestManyAtOnce runs the actions of the schedules concurrently, with real threads and the real clock, for the race
// detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	m := &flowtest.Monitor{TB: t}
	e := flow.NewEngine(flow.EngineOptions{Workers: 16, PerGroup: 12, Backstop: time.Millisecond})
	s := &storm{tokens: make(chan flow.Token, 1<<16)}
	step := flowtest.Watched(m, s.step)
	fl := flow.New("storm", flow.Step("a", step), flow.Step("b", step, flow.Deadline(5*time.Millisecond)),
		flow.Step("c", step))
	ctx, stop := context.WithCancel(t.Context())
	var others, starters sync.WaitGroup
	for range 2 {
		others.Go(func() { // every token is resumed, some twice
			for {
				select {
				case tok := <-s.tokens:
					tok.Resume(nil)
					if rand.N(4) == 0 && tok.Resume(nil) {
						t.Error("a second resume was accepted")
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	others.Go(func() {
		for ctx.Err() == nil {
			s.signal.Set()
			for i := range e.Fibers() {
				if i.Path == "" {
					t.Error("a fiber without a path")
				}
			}
			s.signal.Clear()
		}
	})
	for g := range 4 {
		starters.Go(func() {
			for i := range 500 {
				name := fmt.Sprintf("%d-%d", g, i)
				h, err := fl.Start(ctx, e, s, flow.StartOptions{
					Key: fmt.Sprintf("ns%d/%d", g%2, rand.N(20)), Mode: flow.Mode(rand.N(3)), OnEnd: m.OnEnd(name, nil),
				})
				m.Started(name, h, err)
				if err != nil && !errors.Is(err, flow.ErrBusy) {
					t.Error(err)
				}
				if rand.N(10) == 0 {
					h.Cancel(nil)
				}
			}
		})
	}
	starters.Wait()
	limited, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	if err := e.Drain(limited); err != nil {
		t.Errorf("fibers are left: %v", err)
	}
	stop()
	others.Wait()
	if err := e.Close(limited); err != nil {
		t.Error(err)
	}
	m.Check()
}
