package flow

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// packet records the calls of the steps of a test flow.
type packet struct {
	log    []string
	n      int
	events []pairEvent
}

func (p *packet) note(s string) { p.log = append(p.log, s) }

type (
	fib   = Fiber[packet]
	fstep = StepFunc[packet]
)

// note returns a step that records its name.
func note(name string) Node[packet] {
	return Step(name, func(ctx context.Context, f *fib) Next {
		f.Packet.note(name)
		return f.Next()
	})
}

// bubble runs a test in a synctest bubble with an engine, closed at the end.
func bubble(t *testing.T, opt EngineOptions, test func(t *testing.T, e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(opt)
		defer func() {
			if err := e.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		test(t, e)
	})
}

// start starts a fiber, or fails the test.
func start(t *testing.T, e *Engine, fl *Flow[packet], p *packet, opt StartOptions) Handle {
	t.Helper()
	h, err := fl.Start(t.Context(), e, p, opt)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
