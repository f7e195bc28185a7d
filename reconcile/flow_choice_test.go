package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/testbed"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestACompletedFlowRunsAgainWhenItIsNeeded(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		s.hold.Set()
		var needed bool
		var fail error
		answer := func(is bool, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			needed, fail = is, err
		}
		c, e := b.fibers(s, reconcile.Fibers[gateway, gateway]{
			Flow: s.flow(false),
			Needed: func(context.Context, *gateway) (bool, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return needed, fail
			},
		}, reconcile.WithBackoff(reconcile.Backoff{Base: time.Second}))
		defer e.Close(context.Background())
		b.put("web")
		b.start()
		b.change(label("x"))
		b.settle()
		s.want(t, "it is not needed", "a", "wait", "c")
		unknown := errors.New("not now")
		answer(false, unknown)
		b.change(label("y"))
		b.settle()
		s.want(t, "nobody knows", "a", "wait", "c")
		if fails := c.Failures(); len(fails) != 1 || !errors.Is(fails[0].Err, unknown) {
			t.Errorf("failures: %+v", fails)
		}
		answer(true, nil)
		s.hold.Clear()
		testbed.Settle(time.Minute)
		s.want(t, "from the first step, and while it is under way nobody asks", "a", "wait", "c", "a", "wait")
		answer(false, nil)
		s.hold.Set()
		b.settle()
		s.want(t, "once", "a", "wait", "c", "a", "wait", "c")
	})
}

func TestTheFlowIsChosenForTheState(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		s.hold.Set()
		roll := flow.New("roll", flow.Step("r", flow.Do(func(context.Context, *gateway) error { return s.note("r") })))
		how := reconcile.Fibers[gateway, gateway]{
			Flow: s.flow(false),
			Choose: func(g *gateway) *flow.Flow[gateway] {
				if g.Status.Seen > 0 {
					return roll
				}
				return nil
			},
		}
		_, e := b.fibers(s, how)
		b.put("web")
		b.start()
		s.want(t, "nil is Flow", "a", "wait", "c")
		b.change(size(2))
		b.settle()
		s.want(t, "another one for another state", "a", "wait", "c", "r")
		if p := b.stored().Status.Flow; p == nil || p.Flow != "roll" || p.Generation != 2 || !p.Ended {
			t.Errorf("saved %+v", p)
		}
		b.restart(e)
		_, e = b.fibers(s, how)
		defer e.Close(context.Background())
		b.start()
		s.want(t, "that it has completed is known whichever it was", "a", "wait", "c", "r")
	})
}

func TestAFlowTimesOutAcrossRestarts(t *testing.T) {
	bubble(t, func(b *bench) {
		s := &script{}
		declare := func() (*reconcile.Controller, *flow.Engine) {
			return b.fibers(s, reconcile.Fibers[gateway, gateway]{Flow: s.flow(false), Timeout: time.Minute}, reconcile.MaxAttempts(1))
		}
		_, e := declare()
		b.put("web")
		b.start()
		testbed.Settle(40 * time.Second)
		b.restart(e)
		c, e := declare()
		defer e.Close(context.Background())
		b.start()
		s.want(t, "it goes on", "a", "wait", "wait")
		if fails := c.Failures(); len(fails) != 0 {
			t.Fatalf("failures before the time is over: %+v", fails)
		}
		testbed.Settle(20 * time.Second)
		if fails := c.Failures(); len(fails) != 1 || !errors.Is(fails[0].Err, flow.ErrTimeout) || fails[0].Key != web {
			t.Errorf("failures: %+v", fails)
		}
		if p := b.stored().Status.Flow; p == nil || !p.Ended || p.Step != "wait" {
			t.Errorf("saved %+v", p)
		}
	})
}
