package flow

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An interrupted fiber finishes its step. It continues at the next step on another engine.
func TestInterruptedFiberContinuesOnAnotherEngine(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		kept, begun := &Memory{}, make(chan struct{})
		fl := New("f",
			Step("slow", func(ctx context.Context, f *fib) Next {
				close(begun)
				time.Sleep(time.Second)
				if ctx.Err() != nil {
					t.Error("the step was interrupted")
				}
				f.Packet.note("slow")
				return f.Next()
			}),
			note("after"),
			Step("rest", then(time.Hour, "")),
		)
		p, opt := &packet{}, StartOptions{Key: "ns/x", Positions: kept}
		h := start(t, e, fl, p, opt)
		<-begun
		if !h.Interrupt(ErrMoved) {
			t.Error("too late")
		}
		err := h.Wait(t.Context())
		if h.Status() != Moved || !errors.Is(err, ErrMoved) || !errors.Is(err, ErrInterrupted) || len(p.log) != 1 {
			t.Errorf("%s, %v, ran %q", h.Status(), err, p.log)
		}
		if h.Interrupt(nil) || h.Cancel(nil) {
			t.Error("a fiber that has ended was ended")
		}
		other := NewEngine(EngineOptions{})
		defer other.Close(context.Background())
		second := &packet{}
		h = start(t, other, fl, second, opt)
		time.Sleep(time.Minute) // in the rest of its step
		if !h.Interrupt(ErrMoved) || h.Wait(t.Context()) == nil || h.Status() != Moved {
			t.Errorf("a parked one is %s", h.Status())
		}
		third := &packet{}
		if err := start(t, e, fl, third, opt).Wait(t.Context()); err != nil || len(second.log) != 1 || len(third.log) != 0 {
			t.Errorf("%v; steps ran again: %q, %q", err, second.log, third.log)
		}
	})
}

// Cancel ends the context of a step that does not return after Interrupt. The cause is that of Cancel.
func TestCancelFollowsInterrupt(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		late := errors.New("late")
		fl := New("f", Step("hangs", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Fail(context.Cause(ctx))
		}))
		h := start(t, e, fl, &packet{}, StartOptions{})
		time.Sleep(time.Second)
		if !h.Interrupt(ErrMoved) || !h.Interrupt(nil) {
			t.Error("too late")
		}
		time.Sleep(time.Second)
		if h.Status() != Running || !h.Cancel(late) {
			t.Error("it was ended by Interrupt")
		}
		if err := h.Wait(t.Context()); !errors.Is(err, late) || h.Status() != Cancelled {
			t.Errorf("%s: %v", h.Status(), err)
		}
	})
}

// A durable engine refuses fibers without Positions, but not the children of durable fibers.
func TestADurableEngine(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		e.Inherit(nil, nil, true)
		child := New("child", note("child"))
		fl := New("f", Step("fork", func(_ context.Context, f *fib) Next {
			return f.Fork([]Child{child.Child("c", f.Packet)})
		}))
		if _, err := fl.Start(t.Context(), e, &packet{}, StartOptions{Key: "ns/x"}); !errors.Is(err, ErrNotDurable) {
			t.Errorf("without positions: %v", err)
		}
		p := &packet{}
		h := start(t, e, fl, p, StartOptions{Key: "ns/x", Positions: &Memory{}})
		if err := h.Wait(t.Context()); err != nil || len(p.log) != 1 {
			t.Errorf("%v, ran %q", err, p.log)
		}
	})
}
